"""The decisions: pure classes that are given the time, and answer with actions that carry their
reason. No clock, no randomness and no I/O; drivers elsewhere carry the actions out, and the
simulator constructs the same classes. A folder for each subject.
"""
