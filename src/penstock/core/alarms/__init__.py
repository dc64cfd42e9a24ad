"""Alarms: what is watched, and which state follows from the datapoints seen.

Pure values and decisions. Where datapoints come from, and who carries out an alarm's actions, is
not known here.
"""
