"""What models cost and who is to pay: usage as it is recorded, the report made of it, and what
other ways to serve the same models would cost.
"""
