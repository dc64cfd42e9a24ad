"""Pipelines: reads pipeline.yaml, and carries out each kind of step.

This folder has templates of inputs, calls to endpoints, services and functions, and typed events.
It decides nothing (`core.pipeline` does), and must not know engines or libraries of tensors.
"""
