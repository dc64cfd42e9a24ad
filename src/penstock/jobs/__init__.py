"""Offline work that a server carries out by itself: transform jobs, asynchronous requests,
schedules. It knows the control plane and the gateway; neither knows it.
"""
