"""The control plane: the record of what was asked for, and what drives instances and copies
there. The floor holds the plane itself and what it keeps on its machine.
"""
