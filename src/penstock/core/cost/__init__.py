"""What models cost and who pays: recorded usage, the report made of it, and what other ways to
serve the same models would cost.
"""
