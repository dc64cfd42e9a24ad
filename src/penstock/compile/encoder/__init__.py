"""Encoders of Hugging Face's format: the plan read from their files, and the graph built from
it.
"""
