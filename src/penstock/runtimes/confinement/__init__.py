"""The sandbox around a model's process, and its end together with its parent.

This folder decides which files a process may access, and makes the kernel enforce it. It must not
know what the process runs. Code that runs inside the process imports the standard library alone.
"""
