"""Who is who between machines: one certificate authority per deployment, and what it vouches for.

authority.py  the authority in the state directory, and what it signs
pem.py        what one end shows, and whom it believes
names.py      what certificates call the server and its instances
contexts.py   TLS as both ends speak it, and who may come in
greeting.py   the first word of an instance to whoever connects to it: which version it is
dial.py       a connection to an instance, by whatever kind of address
"""
