"""Pipelines of steps: what a pipeline is, which step runs when, and in which order the events of
the steps leave.
"""
