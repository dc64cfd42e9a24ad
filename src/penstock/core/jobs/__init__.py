"""Offline work: what a transform job is asked for, how it is cut, shared out and ended."""
