"""What is known of one instance, and of one copy on it, as far as this process has brought them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    GONE,
    LOADING,
    STOPPING,
    CopyObserved,
    InstanceObserved,
)
from penstock.core.deployment.wish import ComponentCopiesSpec
from penstock.core.endpoint.ready_times import TimeToReady
from penstock.core.machine.room import PlacedInstance
from penstock.core.models.memory_need import expected_now
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType

_ENDING: Final = (DRAINING, DRAINED)


@dataclass(slots=True, kw_only=True)
class InstanceEntry:
    """One instance: capacity that the fleet has given, or is giving."""

    instance_id: str
    variant: str
    generation: int
    ordinal: int
    kind: InstanceType
    phase: str
    since: float | None
    memory_bytes: int = 0  #: what the instance and its workers take now
    own_bytes: int = 0  #: as `memory_bytes`, without the files that it shares with others
    own_bytes_max: int = 0  #: the most of it: since the start, then since its models are loaded
    ran: bool = False  #: every copy on it has answered requests
    pid: int | None = None
    address: str = ""
    silent_count: int = 0  #: status calls in a row that were not answered
    hangs: bool = False  #: it counts as gone because of them
    asked_at: float = 0.0  #: when its start was asked for, monotonic s
    start_s: float = 0.0  #: until it accepted connections
    connect_s: float = 0.0  #: from then on until requests could be sent
    held_copies: bool = False  #: a copy was placed on it, which is what it was started for
    leaving: bool = False  #: it was decided to take it away while copies on it serve
    guest: bool = False  #: it takes what others leave
    cores_max: int = 0  #: of a guest; 0 = any number

    def observed(self) -> InstanceObserved:
        return InstanceObserved(
            instance_id=self.instance_id,
            variant=self.variant,
            generation=self.generation,
            ordinal=self.ordinal,
            phase=self.phase,
            since=self.since,
            resources=self.kind.resources,
            taken_bytes=self.own_bytes,
            leaving=self.leaving,
            instance_type=self.kind.name,
            guest=self.guest,
        )

    def note_memory(self, measured: Mapping[str, Any]) -> None:
        """From an instance's reply to `load` or `status`."""
        copies = measured.get("copies", ())
        self.own_bytes = int(measured.get("own_bytes", 0))
        self.own_bytes_max = int(measured.get("own_bytes_max", 0))
        self.ran = bool(copies) and all(copy.get("requests") for copy in copies)


@dataclass(slots=True, kw_only=True)
class CopyEntry:
    """One copy: a component's model on an instance, loaded or on its way."""

    copy: int
    instance_id: str
    variant: str
    generation: int
    component: ComponentCopiesSpec
    ordinal: int
    phase: str
    since: float | None
    asked_at: float = 0.0  #: when its load was asked for, monotonic s
    asked: bool = False  #: the instance was told to load it, and will say how that ended
    waits_for_room: bool = False  #: to load its model
    need_bytes: int = 0  #: what its model was granted before it was loaded; 0 = not known yet
    ready_since: float | None = None
    outstanding_max: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    routed: bool = False
    model_memory_bytes: int = 0  #: what loading it took, as the instance measured
    load_s: float = 0.0
    came_with: InstanceEntry | None = None  #: its instance, where that was started for it
    fetch_s: float = 0.0  #: bringing its artifact took
    took: TimeToReady | None = None  #: until it was ready first
    base_copy: int = 0  #: an adapter's: the copy that it is loaded into
    digest: str = ""  #: of its artifact, which the cache must keep
    model_digests: frozenset[str] = frozenset()  #: the same of the target models that it hosts

    def note_models(self, told: Mapping[str, Any]) -> None:
        """From the instance's status of this copy, where it is a host."""
        self.model_digests = frozenset(told.get("digests", ()))

    def observed(self, outstanding: int = 0, *, instance_type: str = "") -> CopyObserved:
        return CopyObserved(
            copy=self.copy,
            instance_id=self.instance_id,
            variant=self.variant,
            generation=self.generation,
            component=self.component.name,
            ordinal=self.ordinal,
            phase=self.phase,
            since=self.since,
            need=self.component.need,
            load_s_max=self.component.download_timeout_s + self.component.startup_timeout_s,
            outstanding_max=self.outstanding_max,
            model=self.model,
            routed=self.routed,
            outstanding=outstanding,
            base_copy=self.base_copy,
            instance_type=instance_type,
        )


def placed(one: InstanceEntry, copies: Sequence[CopyEntry]) -> PlacedInstance:
    """What an instance with these copies holds of the machine."""
    given = one.kind.resources
    granted = [copy for copy in copies if copy.need_bytes or copy.ready_since is not None]
    expected_bytes = expected_now(
        need_bytes=sum(copy.need_bytes for copy in granted),
        own_bytes_max=one.own_bytes_max,
        loaded=bool(granted) and all(copy.ready_since is not None for copy in granted),
        ran=one.ran,
        bytes_max=given.memory_bytes,
    )
    return PlacedInstance(
        instance_id=one.instance_id,
        set_aside=ComputeResources(
            memory_bytes=given.memory_bytes if one.kind.promised else expected_bytes,
            accelerators=given.accelerators,
        ),
        expected_bytes=expected_bytes,
        taken_bytes=one.own_bytes,
        leaving=one.phase in (GONE, STOPPING)
        or any(copy.component.need.whole_instance and copy.phase in _ENDING for copy in copies),
        settling=any(copy.phase == LOADING and not copy.waits_for_room for copy in copies),
        guest=one.guest,
        instance_type=one.kind.name,
    )
