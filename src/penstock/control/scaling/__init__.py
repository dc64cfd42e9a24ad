"""Scalable targets: their rows and activities, the driver of scaling, and the counts that change.

The rules from alarms, schedules and load to capacity are in `core/scaling`. The texts of the API
are in its front door.
"""
