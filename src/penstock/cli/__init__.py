"""The `penstock` command. Commands about one thing share a file, which imports what it needs when
it runs. This folder holds what commands share, and the reports of costs and settings.
"""
