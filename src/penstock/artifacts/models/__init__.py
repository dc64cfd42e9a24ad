"""The target models below one prefix: which there are, their names, and their present state.

A directory or a bucket is read, never written. Contents are not read here: `prepare` does that,
for target models as for any others.
"""
