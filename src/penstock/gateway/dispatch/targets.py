"""Requests for target models whose name another artifact answers under, or is to.

The artifact is chosen once, before the request is routed, so every try of it goes to the same one.
Of two artifacts in a rollout the incoming one gets its share by lot; requests of a session stay
with the one that serves. From here on the request names the artifact: hosts know no other names.
"""

from __future__ import annotations

from typing import Final

import orjson

from penstock.core.deployment.deployment import TargetRoutes
from penstock.gateway.dispatch.invocation import Aimed, Invocation
from penstock.wire.frames import decode_request_meta, encode_request_meta

#: Doors whose answers carry the model's name.
_NAMING_DOORS: Final = ("oip", "oip-grpc")


def aim(invocation: Invocation, targets: dict[str, TargetRoutes], draw: float) -> None:
    """`targets`: of its endpoint, by target model. `draw`: a random number from 0 to below 1."""
    affinity = invocation.affinity
    routes = targets.get(affinity.model or "") if affinity is not None else None
    if affinity is None or routes is None:
        return
    incoming = bool(routes.incoming) and affinity.session is None and draw < routes.share
    aim_at(invocation, Aimed(routes, incoming))


def aim_at(invocation: Invocation, aimed: Aimed) -> None:
    """Names the artifact in a request that names its target model, or the other artifact."""
    meta, parameters = decode_request_meta(invocation.meta), None
    if meta.door in _NAMING_DOORS:  # callers know one name, whichever artifact answers
        given = orjson.loads(meta.parameters) if meta.parameters else {}
        asked = f"{invocation.endpoint}:{aimed.routes.target}"
        parameters = orjson.dumps({"model": asked} | given).decode()
    invocation.meta = encode_request_meta(
        meta._replace(target_model=aimed.artifact, parameters=parameters or meta.parameters)
    )
    assert invocation.affinity is not None
    invocation.affinity = invocation.affinity._replace(model=aimed.artifact)
    invocation.aimed = aimed
