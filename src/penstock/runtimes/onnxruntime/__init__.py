"""ONNX Runtime in lane threads of the instance, for string tensors and for GPUs.

It knows nothing of texts, bodies and processes.
"""
