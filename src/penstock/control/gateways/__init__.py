"""The gateway processes of a server whose control plane is a process of its own.

`group.py` publishes routes to all of them and adds up how many requests wait. `member.py` is one
process from its start to its end. Gateways do not talk to each other: all that they share comes
from the control plane and from the instances.
"""
