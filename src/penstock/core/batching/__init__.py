"""Which requests of one copy run together, and when.

Two ways: batches of whole requests, and decode batches that requests join and leave between steps.
Run times are learned here, for the same decisions.
"""
