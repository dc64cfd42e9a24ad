"""Encoder-decoder models (T5, BART and relatives): graphs of the encoder and of a decoder step, for
OpenVINO and for PyTorch, compared token by token with their sources.
"""
