"""What instances used of their machine, the energy for it, and its cost."""
