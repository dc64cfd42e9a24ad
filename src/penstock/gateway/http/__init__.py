"""HTTP/1.1 of the front: listener, TLS, connections, bodies within their budget, answers in
order, and what is handed to the application behind.
"""
