"""What the control plane sees of one endpoint: instances, failures, routes, history.

It records and counts; `core/reconcile.py` decides with what it shows. Nothing here survives the
process: after a start everything is observed anew.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.core.deployment import EndpointRoutes, VariantSpec
from penstock.core.endpoint_state import (
    DRAINED,
    DRAINING,
    GONE,
    LOADING,
    READY,
    STOPPING,
    EndpointDesired,
    EndpointObserved,
    InstanceObserved,
    SlotFailure,
)
from penstock.core.memory_need import expected_now
from penstock.core.reconcile import ReconcileSpec, failure_count
from penstock.core.room import PlacedInstance
from penstock.fleet.base import InstanceType

_log = logging.getLogger(__name__)

_ACTIVITIES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that was done, or that happened, and why."""

    at: float  #: seconds since the epoch
    what: str
    reason: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class InstanceEntry:
    """One instance, as far as this process has brought it."""

    instance_id: str
    variant: VariantSpec
    generation: int
    ordinal: int
    kind: InstanceType
    phase: str
    since: float | None
    copy: int | None = None
    outstanding_max: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    routed: bool = False
    ready_since: float | None = None
    model_memory_bytes: int = 0  #: what loading the copy took, as the instance measured it
    memory_bytes: int = 0  #: what the instance and its workers take now
    need_bytes: int = 0  #: what its model was granted before it was loaded; 0 = not known yet
    own_bytes: int = 0  #: as `memory_bytes`, without the files that it shares with others
    own_bytes_max: int = 0  #: the most of it: since the start, then since the model is loaded
    ran: bool = False  #: its copy has answered requests
    waits_for_room: bool = False  #: to load its model
    load_s: float = 0.0
    digest: str = ""  #: of its artifact, which the cache must keep
    pid: int | None = None
    address: str = ""
    silent_count: int = 0  #: status calls in a row that were not answered

    def observed(self) -> InstanceObserved:
        return InstanceObserved(
            instance_id=self.instance_id,
            variant=self.variant.name,
            generation=self.generation,
            ordinal=self.ordinal,
            phase=self.phase,
            since=self.since,
            load_s_max=self.variant.download_timeout_s + self.variant.startup_timeout_s,
            copy=self.copy,
            outstanding_max=self.outstanding_max,
            model=self.model,
            routed=self.routed,
        )

    def placed(self) -> PlacedInstance:
        expected_bytes = expected_now(
            need_bytes=self.need_bytes,
            own_bytes_max=self.own_bytes_max,
            loaded=self.ready_since is not None,
            ran=self.ran,
            bytes_max=self.kind.memory_bytes,
        )
        return PlacedInstance(
            instance_id=self.instance_id,
            memory_bytes=self.kind.memory_bytes if self.kind.promised else expected_bytes,
            expected_bytes=expected_bytes,
            taken_bytes=self.own_bytes,
            accelerators=self.kind.accelerators,
            leaving=self.phase in (GONE, DRAINING, DRAINED, STOPPING),
            settling=self.phase == LOADING and not self.waits_for_room,
        )

    def note_memory(self, measured: Mapping[str, Any]) -> None:
        """From an instance's reply to `load` or `status`."""
        self.own_bytes = int(measured.get("own_bytes", 0))
        self.own_bytes_max = int(measured.get("own_bytes_max", 0))
        self.ran = any(copy.get("requests") for copy in measured.get("copies", ()))


class EndpointLedger:
    """One endpoint's."""

    def __init__(self, desired: EndpointDesired, spec: ReconcileSpec) -> None:
        self.desired = desired
        self.instances: dict[str, InstanceEntry] = {}
        self.published: EndpointRoutes | None = None
        self.activities: deque[Activity] = deque(maxlen=_ACTIVITIES_MAX)
        self._failures: dict[tuple[int, str, int], SlotFailure] = {}
        self._spec = spec

    def record(self, at: float, what: str, reason: str, detail: str = "") -> None:
        """Adds to the history; the same thing again right away is not a new one."""
        last = self.activities[-1] if self.activities else None
        if last is None or (last.what, last.reason, last.detail) != (what, reason, detail):
            self.activities.append(Activity(at=at, what=what, reason=reason, detail=detail))
            _log.info("%s: %s (%s) %s", self.desired.endpoint, what, reason, detail)

    def wish(self, desired: EndpointDesired) -> None:
        """A new wish gives every slot fresh attempts, and forgets generations that are gone."""
        if desired == self.desired:
            return
        self.desired = desired
        generations = {
            one.generation for one in (desired.active, desired.target) if one is not None
        }
        self._failures = {
            slot: replace(failure, count=0, permanent=False)
            for slot, failure in self._failures.items()
            if slot[0] in generations
        }

    def fail(self, entry: InstanceEntry, message: str, *, permanent: bool, now: float) -> None:
        """The slot has failed; what it takes with it is the caller's to clean up."""
        ready_s = 0.0 if entry.ready_since is None else now - entry.ready_since
        self.fail_slot(
            (entry.generation, entry.variant.name, entry.ordinal),
            message,
            permanent=permanent,
            ready_s=ready_s,
            now=now,
        )

    def fail_slot(
        self,
        slot: tuple[int, str, int],
        message: str,
        *,
        permanent: bool,
        now: float,
        ready_s: float = 0.0,
    ) -> None:
        generation, variant, ordinal = slot
        self._failures[slot] = SlotFailure(
            variant=variant,
            generation=generation,
            ordinal=ordinal,
            count=failure_count(self._failures.get(slot), ready_s=ready_s, spec=self._spec),
            at=now,
            message=message,
            permanent=permanent,
        )

    def publish(self, routes: EndpointRoutes | None) -> None:
        """Remembers what gateways were told; copies named once may have requests in flight."""
        self.published = routes
        if routes is None:
            return
        named = {route.copy for variant in routes.variants for route in variant.copies}
        for entry in self.instances.values():
            if entry.copy in named:
                entry.routed = True

    def observed(self) -> EndpointObserved:
        return EndpointObserved(
            instances=tuple(entry.observed() for entry in self.instances.values()),
            failures=tuple(self._failures.values()),
            published=self.published,
        )

    def ready_counts(self) -> dict[str, int]:
        """Copies that serve now, by variant of the generation that is shown."""
        deployment = self.desired.active or self.desired.target
        if deployment is None:
            return {}
        counts = {variant.name: 0 for variant in deployment.variants}
        for entry in self.instances.values():
            if entry.phase == READY and entry.generation == deployment.generation:
                counts[entry.variant.name] = counts.get(entry.variant.name, 0) + 1
        return counts

    def entries(self) -> Iterator[InstanceEntry]:
        return iter(self.instances.values())
