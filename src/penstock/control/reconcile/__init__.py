"""The loop that brings every endpoint from its observed state to its spec, and the views that
status reports show. It asks `core/endpoint` and starts the operations in `control/instances`.
"""
