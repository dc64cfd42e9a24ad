"""Warm-up: a model that was started answers its own sample requests before anybody else's.

Here belongs how a description's requests are made and asked. It knows a loaded model as whoever
serves it does, through a copy; which copies there are, and where others' requests come from, it
does not know.
"""
