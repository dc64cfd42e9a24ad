"""Routing in a gateway: which copy of which variant gets a request, and why.

`endpoint.py` draws the variant and keeps the counts, `strategies.py` picks the copy, `copies.py`
holds what is known of a copy.
"""

from penstock.core.routing.copies import CopyState, NoRoute, Routed
from penstock.core.routing.endpoint import EndpointRouter

__all__ = ["CopyState", "EndpointRouter", "NoRoute", "Routed"]
