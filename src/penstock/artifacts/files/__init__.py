"""What all readers of artifacts share: which paths may be, how much may be read, lists of files,
and the files that hold a model.
"""
