"""What one machine has room for, which processes it starts in advance, and when a process that
makes no progress is given up.
"""
