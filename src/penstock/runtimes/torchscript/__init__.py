"""TorchScript files, run by PyTorch in a Python worker of their own.

A TorchScript file is a program: PyTorch's interpreter runs it, and it can read and write files. So
it never runs inside an instance, as programs of torch.export do (`pytorch`), but behind the walls
of a worker, like a model's own code. The worker's Python may be that of an environment.
"""
