"""Which requests of one copy run together, and when.

Three ways: batches of whole requests, decode batches that requests join and leave between steps,
and batches of sequences, whose requests share state. Run times are learned here, for the same
decisions.
"""
