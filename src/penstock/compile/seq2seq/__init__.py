"""Encoder-decoder models (T5, BART and their kin): graphs of encoder and decoder step, for
OpenVINO and for PyTorch, compared token for token.
"""
