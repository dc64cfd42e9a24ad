"""Loading: from a load call to a model that runs, and what is said of it to gateways.

Here belongs what happens before the first request and when the model ends. It must not know
connections, which copies there are, or what is in a request.
"""
