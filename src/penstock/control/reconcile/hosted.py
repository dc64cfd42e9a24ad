"""Deployments that are not endpoints: instances and copies for work that no client invokes.

The reconciler runs them like endpoints, but no gateway routes to them, no list shows them and no
metric counts them. They are not stored either: their owner adds them again after a start of the
server, and removes them when their work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.control.instances.ledger import EndpointLedger
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.deployment.endpoint_state import (
    DELETING,
    IN_SERVICE,
    READY,
    RUNNING,
    STARTING,
    EndpointSpec,
    SlotFailure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedCopy:
    """A copy that is ready and can be called."""

    copy: int
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedObserved:
    """The current state of a hosted deployment."""

    copies: tuple[HostedCopy, ...]  #: copies that can be called
    instances: int  #: its instances in any phase
    coming: int  #: instances without a copy that can be called
    starting: int = 0  #: of `coming`: those that have no connection yet
    price_per_hour: float  #: price of all its instances, US dollars
    failures: tuple[SlotFailure, ...]  #: the last failure of each slot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hosted:
    desired: EndpointSpec
    changed: Callable[[], None]
    on_event: Callable[[dict[str, Any]], None]


class HostedDeployments:
    """All hosted deployments of a server, by name without case. Names have a slash; endpoints'
    don't."""

    def __init__(self) -> None:
        self._hosted: dict[str, _Hosted] = {}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._hosted

    def add(
        self,
        deployment: DeploymentSpec,
        changed: Callable[[], None],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        """`changed` is called when its state has changed; `on_event` with what its instances report
        about their work."""
        assert "/" in deployment.endpoint, "an endpoint might have this name"
        desired = EndpointSpec(endpoint=deployment.endpoint, status=IN_SERVICE, active=deployment)
        hosted = _Hosted(desired=desired, changed=changed, on_event=on_event)
        self._hosted[deployment.endpoint.lower()] = hosted

    def end(self, name: str) -> None:
        """Has its instances stopped."""
        found = self._hosted.get(name.lower())
        if found is not None:
            desired = replace(found.desired, status=DELETING)
            self._hosted[name.lower()] = replace(found, desired=desired)

    def forget(self, name: str) -> None:
        """Removes it, once nothing is left of it."""
        found = self._hosted.pop(name.lower(), None)
        if found is not None:
            found.changed()

    def desired(self, name: str) -> EndpointSpec | None:
        found = self._hosted.get(name.lower())
        return None if found is None else found.desired

    def changed(self, name: str) -> None:
        found = self._hosted.get(name.lower())
        if found is not None:
            found.changed()

    def on_event(self, name: str, event: dict[str, Any]) -> None:
        found = self._hosted.get(name.lower())
        if found is not None:
            found.on_event(event)


def seen_of(ledger: EndpointLedger) -> HostedObserved:
    """Copies on instances whose connection is closed can't be called and are left out."""
    running = {one.instance_id for one in ledger.instances.values() if one.phase == RUNNING}
    copies = tuple(
        HostedCopy(copy=copy.copy, instance_id=copy.instance_id)
        for copy in ledger.copies.values()
        if copy.phase == READY and copy.instance_id in running
    )
    answering = {one.instance_id for one in copies}
    return HostedObserved(
        copies=copies,
        instances=len(ledger.instances),
        coming=sum(
            one.phase in (STARTING, RUNNING) and one.instance_id not in answering
            for one in ledger.instances.values()
        ),
        starting=sum(one.phase == STARTING for one in ledger.instances.values()),
        price_per_hour=sum(one.kind.price_per_hour for one in ledger.instances.values()),
        failures=ledger.observed().failures,
    )
