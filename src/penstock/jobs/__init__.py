"""Offline work that a server does in the background: transform jobs, asynchronous requests and
schedules.

It knows the control plane and the gateway; neither knows it.
"""
