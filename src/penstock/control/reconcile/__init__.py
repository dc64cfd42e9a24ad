"""The loop that brings every endpoint from what is to what should be, and what reports say of it.
It asks `core/endpoint` and begins the operations in `control/instances`.
"""
