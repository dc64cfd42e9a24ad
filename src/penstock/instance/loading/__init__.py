"""Loading: from a load call to a running model, and its description for gateways.

This folder has all that happens before the first request and when the model ends. It must not know
connections, which copies exist, or what is in a request.
"""
