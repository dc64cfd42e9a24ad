"""Python models: the instance's end of their workers, the worker, and the contracts it honours.

Here belong SageMaker's functions, Triton's class, and whose fault a worker's end is. It must not
know pipelines, engines or libraries of tensors.
"""
