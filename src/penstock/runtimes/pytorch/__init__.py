"""PyTorch: exported programs of tensors, and of encoder-decoder models, on CPU or GPU.

Only this folder uses PyTorch; `library` alone imports it, on first use. It must not know other
libraries of tensors, nor processes.
"""
