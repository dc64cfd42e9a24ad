"""The data plane: requests come in, go to a copy each, and answers go back. HTTP/1.1 is in `http/`,
HTTP/2 in `http2/`, the server of both in `http_server/`, the way to the copies in `dispatch/`,
spans in `tracing/`, the connection to the control plane in `channel/`.
"""
