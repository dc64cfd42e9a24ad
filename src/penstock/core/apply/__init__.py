"""What `penstock apply` and packages decide: the difference between files and what is there, and
names that follow from content.
"""
