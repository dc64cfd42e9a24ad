"""Schedules of transform jobs: kept on record, run when they are due, shown by the admin API."""
