"""The models of one artifact that its other models call; each has its own queue, lanes and workers.

For such a model a nested call is a request like any other, and joins others in batches; its tensors
stay arrays of this process. This folder must not know front doors, codecs of bodies, or how a model
is loaded.
"""
