"""Shared workers: several Python models of one host of target models in one process.

    pool        which model is in which worker: drives `core.residency.worker_sharing`
    runtime     one model: whether it may share, where it is loaded, its requests
    worker      one process seen from the instance: its jobs, one after the other
    inside      the process itself, with `stage`: each model sees its own names only

This folder decides what models share and what is kept apart. It must not know which models are
wanted: the host of target models decides that.
"""
