"""The current hosts of an endpoint's target models, as the control plane calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.control.instances.instance_client import InstanceClient, Json
from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.deployment import ModelSource
from penstock.core.deployment.endpoint_state import READY, RUNNING
from penstock.errors import NotNowError

#: Time limit for a host's answer, in s; hosts answer such questions at once.
ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModelHost:
    """A ready copy that hosts target models."""

    variant: str
    instance_id: str
    copy: int
    client: InstanceClient | None

    async def call(self, *, timeout_s: float = ANSWER_S, **op: Any) -> Json:
        """Raises what `InstanceClient.call` raises."""
        if self.client is None:
            raise NotNowError("instance-gone", f"instance {self.instance_id} is gone")
        reply = await self.client.call({"copy": self.copy} | op, timeout_s=timeout_s)
        reply.pop("ok", None)
        return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModel:
    """A multi-model endpoint and its current hosts."""

    endpoint: str  #: the name as it was given at creation; lookups ignore case
    sources: tuple[ModelSource, ...]  #: the model prefixes of its multi-model variants
    hosts: tuple[TargetModelHost, ...]


def multi_model_of(
    ledger: EndpointLedger, client: Callable[[str], InstanceClient | None]
) -> MultiModel | None:
    """None if the endpoint has no multi-model variant."""
    deployment = ledger.desired.active or ledger.desired.target
    variants = deployment.variants if deployment is not None else ()
    models = [one.model for one in variants if one.model is not None]
    sources = dict.fromkeys(one for one in models if one.multi_model)
    if not sources:
        return None
    hosts = [
        TargetModelHost(
            variant=entry.variant,
            instance_id=entry.instance_id,
            copy=copy.copy,
            client=client(entry.instance_id),
        )
        for entry, copies in ledger.held()
        for copy in copies
        if entry.phase == RUNNING and copy.phase == READY and copy.component.model.multi_model
    ]
    return MultiModel(endpoint=ledger.desired.endpoint, sources=tuple(sources), hosts=tuple(hosts))
