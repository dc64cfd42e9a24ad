"""Alarms as they are kept and driven: rows and history, evaluation in time, actions.

What state follows from which datapoints is `core/alarms`; what an action does is its target's.
"""
