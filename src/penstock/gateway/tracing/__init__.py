"""Traces of requests: who asked, where the time went, and spans to a collector."""
