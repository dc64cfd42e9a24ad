"""A runtime that is added from this folder alone: sums of powers, from text files."""
