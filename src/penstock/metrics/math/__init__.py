"""Metric math and SEARCH: parsed, its cost estimated before any work, evaluated."""
