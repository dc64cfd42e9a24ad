"""Walls between a model's process and the machine, and its end with its parent.

Here belong which files a process may touch, and the kernel's calls that see to it. It must not know
what the process runs; what runs inside the process imports the standard library alone.
"""
