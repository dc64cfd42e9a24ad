"""Python models of one host of target models in few processes, several in each.

    pool        which model is in which worker: drives `core.worker_sharing`
    member      one model as the pool knows it, `runtime` as its copy does; `kinds`: who may share
    worker      one process seen from the instance: what it is asked, one thing after the other
    inside      the process itself, with `stage`: each model sees its own names only

Here belongs what is shared and what is kept apart. It must not know which models are wanted: the
host of target models decides that.
"""
