"""Forms of bytes that several layers speak: frames between processes, AWS's protocols, JSON,
HTTP.
"""
