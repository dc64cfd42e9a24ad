"""Engines: how the requests of one copy are computed; a module per kind of model, and its threads.

Here belongs what turns bodies into a runtime's work and its results into answers. It must not know
the process around it: connections, other copies, how a model was loaded, or memory.
"""
