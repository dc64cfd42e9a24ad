"""The time series store: samples, statistics and percentiles in limited memory, kept on disk over a
restart.
"""
