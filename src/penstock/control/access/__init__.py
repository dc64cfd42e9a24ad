"""Access keys: creating them, storing them encrypted with a key outside the database, and checking
requests.
"""
