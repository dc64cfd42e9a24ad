"""Access keys: made, kept encrypted apart from the database, and ready to check requests."""
