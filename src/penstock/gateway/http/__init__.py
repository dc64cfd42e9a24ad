"""The gateway's HTTP/1.1 server: listener, TLS, connections, bodies within their budget, answers in
order, and the door to the ASGI application.
"""
