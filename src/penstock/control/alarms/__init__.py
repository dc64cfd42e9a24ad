"""Alarms: their rows and history, their evaluation over time, and their actions.

The rules from datapoints to states are in `core/alarms`. The target of an action decides what the
action does.
"""
