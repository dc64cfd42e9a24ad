"""Recognises an unpacked artifact by its files, its image and its environment."""
