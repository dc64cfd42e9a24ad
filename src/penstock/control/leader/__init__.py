"""Leader election among servers that share one PostgreSQL database."""
