"""The decisions: pure classes that take the time as an argument and return actions with a reason.

They read no clock, draw no random numbers and do no I/O. Drivers elsewhere carry the actions out,
and the simulator builds the same classes. Each subject has a folder.
"""
