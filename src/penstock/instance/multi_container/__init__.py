"""A model of several containers: all are loaded into one instance, and a request passes through
each of them in turn, or goes to the one that it names.

Each container is a model like any other, with a runtime, a queue and workers of its own. This
folder does not know which runtimes they have.
"""
