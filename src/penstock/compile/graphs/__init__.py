"""Graph files (ONNX, programs of PyTorch), and the lowering to a model file that all kinds of
models share.
"""
