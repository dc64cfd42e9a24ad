"""The models of one artifact that others of it call: each with its own queue, lanes and workers.

A call is a request like any other to such a model, joined with those of other callers; its tensors
stay arrays of this process. It must not know doors, codecs of bodies, or how a model is loaded.
"""
