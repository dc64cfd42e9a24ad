"""Finds how to serve a model within a latency: measure runs, search in the twin, verify live."""
