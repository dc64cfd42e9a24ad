"""Counts of target models: reported by their hosts, stored, on the page, and in cost reports."""
