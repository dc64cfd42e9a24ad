"""Decoder-only language models as one stateful graph for OpenVINO GenAI, compared token by token
with their sources.
"""
