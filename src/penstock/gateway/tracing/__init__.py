"""Traces of requests: the caller's trace, where the time went, and spans to a collector."""
