"""From what an endpoint should be and what is seen of it to the next actions: instances and
copies to start, to place and to end. `reconcile` is the way in; each other file decides one thing
of it.
"""
