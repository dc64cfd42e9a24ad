"""Whether an artifact answers as its source does, and how fast: samples, parity, times, and the
samples that are kept in the artifact.
"""
