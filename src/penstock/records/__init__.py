"""Records of large data sets: objects are listed, cut into spans, read, filtered, and written back
as a whole or not at all. This folder knows files, stores and formats, and must not know models.
"""
