"""Counting on the way of requests, and adding up the counts of several processes."""
