"""ONNX Runtime: what needs string tensors, or a GPU's providers, in lane threads of the instance.

It knows nothing of texts, bodies and processes.
"""
