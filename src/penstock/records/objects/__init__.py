"""Objects that contain records: found below a prefix or by a manifest, read from any position, and
written as a whole or not at all.
"""
