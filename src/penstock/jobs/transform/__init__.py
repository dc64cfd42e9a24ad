"""Batch transform: the records of jobs, their capacity, and the drivers that run them."""
