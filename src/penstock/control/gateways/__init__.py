"""The gateway processes of a server whose control plane is a process of its own.

`group.py` is what reconciliation publishes to; `member.py` one process from its start to its end;
`waiting.py` adds up how many requests wait. What gateways say to each other is nothing: all that
they share comes from here, and from the instances.
"""
