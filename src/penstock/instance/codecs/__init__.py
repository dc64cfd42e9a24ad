"""Content types to rows of tensors and back, one file per family. `select.py` picks the codec."""
