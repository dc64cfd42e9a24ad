"""The source of a compile: its kind, whether it is whole and safe to open, its weights, its
tokenizer.
"""
