"""Asynchronous inference: a queue that outlives processes, and the drivers that work through it."""
