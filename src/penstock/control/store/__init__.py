"""The stored record of what users asked for, in transactions: rows, pages, and the database
thread.
"""
