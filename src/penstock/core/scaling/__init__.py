"""Scaling: from alarms, schedules and observations to the count that a target should have.

Measuring, deciding and acting are apart: alarms (`core/alarms`) and `observed` measure, `machine`
decides with a rule per file, and its actions are carried out elsewhere. Times are wall seconds:
cooldowns, schedules and activities outlive the server.
"""
