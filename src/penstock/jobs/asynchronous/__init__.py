"""Asynchronous inference: a queue that outlives processes, and who works through it."""
