"""Processes of ours that run what an artifact brings, seen from the instance: start, messages, end.

Here belong what all such processes share: the socket and its messages, log lines, deaths and the
rule of starting again, errors as bytes. It must not know what a worker computes.
"""
