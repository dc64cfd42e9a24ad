"""Scaling: from alarms, schedules and what is seen to the count that a target should have.

Measure, decide and act have three names: alarms (`core/alarms`) and `observed` measure, `machine`
decides with a rule per file, and its actions are carried out elsewhere. Times are wall seconds:
cooldowns, schedules and activities outlive the server.
"""
