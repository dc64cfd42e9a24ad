"""How many processes share the work of a server, and which of several servers leads."""
