"""The channel between the control plane's process and a gateway process that it started.

One pair of connected sockets each, made before the gateway starts: there is no address that anybody
else could open. What is said is in `words.py`, how it is framed in `messages.py`. A gateway routes
by itself; nothing of a request goes this way.
"""
