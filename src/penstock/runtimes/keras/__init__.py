"""Keras models (*.keras, *.h5), run by Keras in a Python worker of their own.

They hold layers by name and tensors, and some hold code (`Lambda`), so they never run inside an
instance. The worker's Python may be that of an environment.
"""
