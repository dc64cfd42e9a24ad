"""Python models: their workers seen from the instance, the worker process, and its contracts.

The contracts are SageMaker's functions and Triton's class. This folder also decides whose fault a
worker's end is. It must not know pipelines, engines or libraries of tensors.
"""
