"""Offline work from the shell: transform jobs, their schedules, and the list of both."""
