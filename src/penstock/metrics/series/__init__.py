"""The time series store: samples, statistics and percentiles in bounded memory, on disk over a
restart.
"""
