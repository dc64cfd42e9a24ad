"""What an unpacked artifact is, seen from its files, its image and its environment."""
