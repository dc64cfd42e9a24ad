"""PyTorch: exported programs of tensors, and of encoder-decoder models, on CPU or GPU.

Here belongs all that touches PyTorch, which `library` alone imports, on first use. It must not know
other libraries of tensors, nor processes.
"""
