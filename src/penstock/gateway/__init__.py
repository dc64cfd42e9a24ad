"""The data plane: requests come in, go to a copy each, and answers go back. HTTP is in `http/`, the
way to the copies in `dispatch/`, spans in `tracing/`, the connection to the control plane in
`channel/`.
"""
