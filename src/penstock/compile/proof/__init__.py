"""Whether the artifact answers as its source does, and how fast: samples, parity, times, and what
of it is kept in the artifact.
"""
