"""The control plane: the stored record of what users asked for, and the loops that start instances
and load copies accordingly. This folder's own files are the plane itself and what it keeps on its
machine.
"""
