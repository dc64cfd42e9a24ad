"""The process that hosts copies: what it is itself lies here, the rest in rooms.

    codecs    bodies into values and back      engines   values through a runtime
    loading   from a load call to a model      memory    what models need and take

It must not know other instances, why a copy is here, or which requests come to it.
"""
