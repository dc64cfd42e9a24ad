"""How the parts of a server are put together, in one process or in several; nothing is decided.

control_side   control plane, scaling, alarms, offline work, metrics: once per server
front          doors and ports of one process that serves requests
gateway        a gateway process: a front, and its end of the channel to the control side
gateways       the control side's end: all gateway processes of the server
"""
