"""Triton's model repositories and config.pbtxt, read into the same description."""
