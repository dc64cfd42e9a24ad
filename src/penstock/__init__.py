"""Penstock: self-hosted inference behind the APIs that teams already call.

Importing this package imports no runtime and no server; each part is imported when first used.
"""

__version__ = "0.1.0"
