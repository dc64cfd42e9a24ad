"""The CloudWatch operations on alarms: they read and check requests, and show alarms.

`control/alarms` keeps the alarms and decides on their states.
"""
