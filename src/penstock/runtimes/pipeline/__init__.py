"""Pipelines: pipeline.yaml read, and one way for each kind of step.

Here belong templates of inputs, calls to endpoints, services and functions, and typed events. It
decides nothing (`core.pipeline` does), and must not know engines or libraries of tensors.
"""
