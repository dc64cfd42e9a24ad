"""Who leads, where several servers share one PostgreSQL database."""
