"""Codecs: content types to rows of tensors and back, one file per family; `select` picks the codec.

Here belongs what a body says and how an answer is written: bytes in, bytes out. They must not know
queues, engines or connections, and run no model.
"""
