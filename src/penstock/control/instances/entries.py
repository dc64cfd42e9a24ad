"""What is known of one instance, and of one copy on it, as it comes up and goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.deployment.capacity_spec import ComponentCopiesSpec
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    GONE,
    LOADING,
    STOPPING,
    CopyObserved,
    InstanceObserved,
)
from penstock.core.endpoint.ready_times import TimeToReady
from penstock.core.machine.room import PlacedInstance
from penstock.core.models.memory_need import expected_now
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType

_ENDING: Final = (DRAINING, DRAINED)


@dataclass(slots=True, kw_only=True)
class InstanceEntry:
    """One instance: capacity that the fleet has given or is about to give."""

    instance_id: str
    variant: str
    generation: int
    ordinal: int
    kind: InstanceType
    phase: str
    since: float | None
    memory_bytes: int = 0  #: memory that the instance and its workers take now
    own_bytes: int = 0  #: as `memory_bytes`, without files that it shares with other processes
    #: the highest `own_bytes` since the start; once the models are loaded, since then
    own_bytes_max: int = 0
    ran: bool = False  #: every copy on it has answered requests
    pid: int | None = None
    address: str = ""
    silent_count: int = 0  #: status calls in a row that were not answered
    hangs: bool = False  #: so many calls were not answered that it counts as gone
    asked_at: float = 0.0  #: when its start was asked for, monotonic s
    start_s: float = 0.0  #: from the request to start it until it accepted connections
    connect_s: float = 0.0  #: from then until requests could be sent
    held_copies: bool = False  #: a copy was placed on it, which is what it was started for
    leaving: bool = False  #: it is to be removed, while copies on it still serve
    shadow: bool = False  #: of a shadow variant
    guest: bool = False  #: it takes only what other instances leave free
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
            yields=self.yields,
        )

    @property
    def yields(self) -> bool:
        """Whether others go before it, so that it may get no core for minutes."""
        return self.guest or self.shadow

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
    asked: bool = False  #: the instance was told to load it, and will report how that ended
    waits_for_room: bool = False  #: it waits for memory to load its model
    need_bytes: int = 0  #: memory granted to its model before the load; 0 = not known yet
    ready_since: float | None = None
    outstanding_max: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    routed: bool = False
    model_memory_bytes: int = 0  #: memory that loading took, as the instance measured it
    load_s: float = 0.0
    came_with: InstanceEntry | None = None  #: its instance, if that was started for this copy
    fetch_s: float = 0.0  #: time to fetch its artifact
    took: TimeToReady | None = None  #: times until it was first ready; None: it was not
    base_copy: int = 0  #: for an adapter: the copy that it is loaded into; 0: it is no adapter
    digest: str = ""  #: digest of its artifact, which the cache must keep
    model_digests: frozenset[str] = frozenset()  #: digests of the target models that it hosts

    def note_models(self, told: Mapping[str, Any]) -> None:
        """Takes the target models from the instance's status of this copy, if it is a host."""
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
    """The resources of the machine that an instance with these copies takes."""
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
