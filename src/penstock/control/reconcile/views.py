"""Instances and the copies on them, as status reports show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.core.deployment.endpoint_state import LOADING, READY, RUNNING
from penstock.core.endpoint.ready_times import TimeToReady
from penstock.core.resources import NO_RESOURCES, ComputeResources


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyView:
    """One copy."""

    copy: int
    component: str
    phase: str  #: the instance's phase, while that does not run
    waits: str = ""  #: what its load waits for: "turn" of others, or "memory"; "" = it goes on
    load_s: float
    model_memory_bytes: int  #: memory that loading it took
    #: what is reserved for it; none: it shares all of its instance
    set_aside: ComputeResources = NO_RESOURCES
    model: Mapping[str, Any] = field(default_factory=dict)  #: as its instance described it
    took: TimeToReady | None = None  #: times until it was ready; None: it is not ready yet


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """One instance."""

    instance_id: str
    variant: str
    generation: int
    phase: str
    instance_type: str
    resources: ComputeResources
    memory_bytes: int  #: memory of it and its workers, at most a few seconds old
    pid: int | None
    log_path: Path
    copies: tuple[CopyView, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The phases of its copies; its own phase if it has none yet."""
        return tuple(copy.phase for copy in self.copies) or (self.phase,)

    @property
    def serves(self) -> bool:
        return READY in self.states

    @property
    def load_s(self) -> float:
        """The time to load all its copies together, in s."""
        return sum(copy.load_s for copy in self.copies)


def instance_view(entry: InstanceEntry, copies: list[CopyEntry], log_path: Path) -> InstanceView:
    return InstanceView(
        instance_id=entry.instance_id,
        variant=entry.variant,
        generation=entry.generation,
        phase=entry.phase,
        instance_type=entry.kind.name,
        resources=entry.kind.resources,
        memory_bytes=entry.memory_bytes,
        pid=entry.pid,
        log_path=log_path,
        copies=tuple(
            CopyView(
                copy=copy.copy,
                component=copy.component.name,
                phase=copy.phase if entry.phase == RUNNING else entry.phase,
                waits=_waits(copy) if entry.phase == RUNNING else "",
                load_s=copy.load_s,
                model_memory_bytes=copy.model_memory_bytes,
                set_aside=copy.component.need.resources,
                model=copy.model,
                took=copy.took,
            )
            for copy in copies
        ),
    )


def _waits(copy: CopyEntry) -> str:
    if copy.phase != LOADING or copy.since is not None:
        return ""
    return "memory" if copy.waits_for_room else "turn"
