"""The twin of several regions: their users, what is between them, and each policy of sending."""
