"""Where artifacts lie and how bytes come from there: this machine, buckets, HTTP, another
server.
"""
