"""When things are due: cron expressions, rates, moments and hours, in a time zone.

All recurring times that users write are parsed and evaluated here, on one calendar.
"""
