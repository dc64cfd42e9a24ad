"""Python models: the instance's end of their workers, the worker, and the contracts it honours.

Here belong SageMaker's functions and Triton's class. It must not know pipelines, engines, tensors
of native runtimes, or how requests reach the instance.
"""
