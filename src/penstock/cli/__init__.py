"""The `penstock` command: a file for each noun, which imports what it needs when it runs. This
folder holds what commands share.
"""
