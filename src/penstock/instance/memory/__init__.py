"""Memory: what the instance and its models need, take and took, and the limit that holds them.

Here belongs what looks at processes and files for their size. It must not know requests, engines or
connections; which models are loaded it is told.
"""
