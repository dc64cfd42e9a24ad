"""Pipelines of steps: what one is, which step runs when, and in which order what the steps make
leaves.
"""
