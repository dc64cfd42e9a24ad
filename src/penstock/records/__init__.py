"""Records of large data sets: objects listed, cut into spans, read, filtered, and written back
whole or not at all. It knows files, stores and formats; it must not know models.
"""
