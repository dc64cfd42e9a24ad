"""Schedules of transform jobs: on record, begun when they are due, told by the admin API."""
