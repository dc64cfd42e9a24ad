"""Engines: compute the requests of one copy; one module per kind of model, and their threads.

They turn decoded bodies into work for a runtime, and its results into answers. They must not know
the process around them: connections, other copies, how a model was loaded, or memory.
"""
