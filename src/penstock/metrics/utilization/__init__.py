"""What instances used of their machine, the energy that it took, and what it cost."""
