"""The CloudWatch operations on alarms: requests read and checked, alarms shown.

What they keep is `control/alarms`; nothing here decides in which state an alarm is.
"""
