"""What happens to one request before and after a copy has it: whether it is admitted, what its head
must be, what it may hold in memory, which models it may call, and when it is sent again.
"""
