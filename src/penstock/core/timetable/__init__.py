"""When things are due: cron expressions, rates, moments and hours, on the clock of a time zone.

All that users write about times that come again is read and evaluated here, on one calendar.
"""
