"""From the spec of an endpoint and what is observed of it to the next actions: instances and
copies to start, to place and to end. `reconcile` is the way in; every other file decides one part.
"""
