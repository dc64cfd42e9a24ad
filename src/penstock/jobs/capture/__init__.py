"""Data capture: writes calls and their answers to objects, off the path of requests."""
