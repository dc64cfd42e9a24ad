"""Objects that hold records: found below a prefix or by a manifest, read from anywhere in them,
and written whole or not at all.
"""
