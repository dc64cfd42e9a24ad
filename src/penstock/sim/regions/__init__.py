"""The twin of several regions: their users, the network between them, and policies of routing."""
