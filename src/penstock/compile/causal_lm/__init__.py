"""Decoder-only language models as one stateful graph for OpenVINO GenAI, compared token for
token.
"""
