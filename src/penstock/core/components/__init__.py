"""Inference components: what one should be, how its copies are replaced, and its life.

Pure values and decisions. Which instance a copy goes to is `core/placement.py`'s, as for every
copy; that requests name components is the routers'.
"""
