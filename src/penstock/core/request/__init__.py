"""What becomes of one request before and after a copy has it: whether it may come in, what its
head must be, what it may hold in memory, whom it may call, and when it is sent again.
"""
