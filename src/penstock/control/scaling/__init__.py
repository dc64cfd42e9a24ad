"""Scalable targets as they are kept and driven: rows, activities, time, counts of resources.

What follows from alarms, schedules and load is `core/scaling`; how a door words it is its own.
"""
