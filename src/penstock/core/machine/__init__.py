"""What one machine has room for, which processes it starts in advance, and when a process that
does not get on is given up.
"""
