"""What `penstock apply` and packages decide: the steps from what exists to what the files say, and
names that are derived from content.
"""
