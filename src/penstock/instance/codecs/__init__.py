"""Codecs: content types to rows of tensors and back, one file per family; `select` picks the codec.

Codecs read bodies and write answers: bytes in, bytes out. They must not know queues, engines or
connections, and run no model.
"""
