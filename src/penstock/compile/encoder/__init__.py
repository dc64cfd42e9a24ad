"""Encoders of Hugging Face's format: a plan read from their files, and the graph built from it."""
