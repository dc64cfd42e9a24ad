"""The database, SQLite or PostgreSQL: its connection, its tables, their migration to this version,
and its errors in words that say what to do.
"""
