"""Counts of target models: told by their hosts, in the store, on the page, and in cost reports."""
