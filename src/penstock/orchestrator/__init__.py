"""A gateway whose targets are regions: it shares traffic among them, follows their load, and
continues streams that a region broke off.
"""
