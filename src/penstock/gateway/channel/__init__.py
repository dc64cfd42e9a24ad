"""The channel between the control plane's process and a gateway process that it started.

Each gateway has one pair of connected sockets, made before it starts, so there is no address that
anybody else could open. `messages.py` has the framing, `channel.py` the two ends. A gateway routes
by itself; no request goes this way.
"""
