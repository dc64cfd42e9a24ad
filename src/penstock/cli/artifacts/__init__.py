"""What is made before anything is deployed: compiled models, packages, settings tuned to a
latency.
"""
