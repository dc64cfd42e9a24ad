"""Batch transform: the record of jobs, their capacity, and what drives them to their end."""
