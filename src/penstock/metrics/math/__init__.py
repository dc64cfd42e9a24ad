"""Metric math and SEARCH: parsing, an estimate of the cost before any work, evaluation."""
