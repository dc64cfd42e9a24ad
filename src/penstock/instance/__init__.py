"""The process that hosts copies. Its own parts are here, the rest is in folders.

    codecs     bodies into values and back      engines    values through a runtime
    loading    from a load call to a model      memory     what models need and take
    models     a host of target models          inner      models that one artifact's others call
    transform  spans of transform jobs          warm_up    a model's own sample requests

It must not know other instances, why a copy is here, or which requests come to it.
"""
