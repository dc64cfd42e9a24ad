"""Warm-up: a new model answers its own sample requests before all others.

This folder makes and sends the requests in a description. It uses a loaded model through a copy, as
the server does; it does not know which copies exist, and where other requests come from.
"""
