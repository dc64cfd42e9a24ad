"""Application Auto Scaling: its operations on targets, policies, scheduled actions and
activities.
"""
