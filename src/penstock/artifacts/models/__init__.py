"""The target models below one prefix: their names, what lies there now, and which there are.

A directory or a bucket is looked at, never written, and no content is read here: `prepare` does
that, for target models as for any other.
"""
