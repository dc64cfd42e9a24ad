"""Memory of the instance and its models: estimates, measurements, and the limit.

This folder measures processes and files. It must not know requests, engines or connections; its
callers say which models are loaded.
"""
