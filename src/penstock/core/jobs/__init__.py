"""Offline work: the spec of a transform job, and how it is cut, shared out and ended."""
