"""Data capture: which calls are captured, and when what was captured is written."""
