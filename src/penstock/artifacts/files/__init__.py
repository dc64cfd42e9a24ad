"""What all readers of artifacts share: allowed paths, bounds on what is read, lists of files, and
the files that hold a model.
"""
