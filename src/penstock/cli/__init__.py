"""The `penstock` command: a file for each noun, which imports what it needs when it runs. The
floor holds what commands share.
"""
