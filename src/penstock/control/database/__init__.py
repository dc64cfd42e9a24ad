"""The database itself, SQLite or PostgreSQL: its connection, its tables, the step to this
version's tables, and its errors in words to act on.
"""
