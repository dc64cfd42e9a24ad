"""The data plane: requests in, a copy for each, answers back. HTTP in `http/`, the way to the
copies in `dispatch/`, spans in `tracing/`, the tie to the control plane in `channel/`.
"""
