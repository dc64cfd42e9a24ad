"""Routing in a gateway: which copy of which variant gets a request, and why.

Filter, score, pick. `endpoint.py` chooses the variant, filters and keeps the counts; `sessions.py`
knows the copies that requests are bound to. `strategies.py` builds a RoutingStrategy from a picker
(`pickers.py`) and, for PREFIX_AWARE, the scores of `prefixes.py`, weighed by `prefix_aware.py`.
For a multi-model endpoint `target_models.py` chooses the host. `outliers.py` ejects copies that
answer nothing while others do. `copies.py` holds what is known of a copy.
"""

from penstock.core.routing.copies import CopyState, ModelsObserved, NoRoute, Routed
from penstock.core.routing.endpoint import EndpointRouter
from penstock.core.routing.sessions import SESSION_IDLE_S_MAX

__all__ = [
    "SESSION_IDLE_S_MAX",
    "CopyState",
    "EndpointRouter",
    "ModelsObserved",
    "NoRoute",
    "Routed",
]
