"""Certificates between machines: one certificate authority per deployment, and what it signs.

authority.py  the authority in the state directory, and what it signs
pem.py        what one end shows, and whom it trusts
contexts.py   TLS as both ends speak it, the names in certificates, and who may connect
dial.py       a connection to an instance, by whatever kind of address, and its greeting
"""
