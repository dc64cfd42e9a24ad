"""Certificates between machines: one certificate authority per deployment, and what it signs.

authority.py  the authority in the state directory, and what it signs
contexts.py   TLS as both ends speak it: what they show, whom they trust, the names in certificates
dial.py       a connection to an instance, by whatever kind of address, and its greeting
"""
