"""Graphs that exist already, and how a graph becomes a model file: ONNX, programs of PyTorch, and
the lowering that all kinds of model end in.
"""
