"""What one instance has free for copies, and what is missing where a copy fits on none.

Free memory has two limits: what is set aside for the copies, and what the operating system
measures. Copies that have outgrown what was set aside leave less free; a copy that is being loaded
has not taken yet what is set aside for it. Cores and accelerators are set aside as requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from penstock.core.deployment.capacity_spec import ComponentCopiesSpec, CopySpec
from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    LOADING,
    UNLOADING,
    CopyObserved,
    InstanceObserved,
)
from penstock.core.machine.room import CAPACITY_ERROR
from penstock.core.resources import NO_RESOURCES, ComputeResources

#: Phases of copies that will or may free room: a loading copy may keep less than was set aside.
_UNSETTLED = (LOADING, DRAINING, DRAINED, UNLOADING, ENDING)


class InstanceRoom:
    """One running instance with its copies, and those that a decision adds."""

    __slots__ = ("_components", "_held", "_settled", "_settled_count", "_whole", "copies", "count",
                 "instance")  # fmt: skip

    def __init__(self, instance: InstanceObserved, copies: Iterable[CopyObserved]) -> None:
        self.instance = instance
        self.copies = tuple(copies)
        self.count = len(self.copies)  #: copies, including those that a decision adds
        self._whole = any(copy.need.whole_instance for copy in self.copies)
        self._components: dict[str, int] = {}
        for copy in self.copies:
            self._components[copy.component] = self._components.get(copy.component, 0) + 1
        settled = [copy for copy in self.copies if copy.phase not in _UNSETTLED]
        self._settled, self._settled_count = _set_aside(settled), len(settled)
        loading = _set_aside(copy for copy in self.copies if copy.phase == LOADING)
        loaded = _set_aside(copy for copy in self.copies if copy.phase != LOADING)
        measured = ComputeResources(memory_bytes=instance.taken_bytes)
        self._held = loaded.at_least(measured) + loading

    @property
    def whole(self) -> bool:
        """Whether a copy has the instance to itself."""
        return self._whole

    def fits(self, need: CopySpec) -> bool:
        if need.whole_instance:
            return self.count == 0
        return not self._whole and need.resources.fits(self.free())

    def may_fit_later(self, need: CopySpec) -> bool:
        """Whether it may fit after all loads and unloads under way have ended."""
        if self._settled_count == self.count:
            return False
        if need.whole_instance:
            return self._settled_count == 0
        return need.resources.fits(self.instance.resources - self._settled)

    def add(self, component: ComponentCopiesSpec) -> None:
        """Adds a copy that is about to be loaded here."""
        self.count += 1
        self._whole = self._whole or component.need.whole_instance
        self._components[component.name] = self._components.get(component.name, 0) + 1
        self._held += component.need.resources

    def free(self) -> ComputeResources:
        """Free resources; negative where copies have outgrown the instance."""
        return self.instance.resources - self._held

    def slot_key(self) -> tuple[int, str]:
        return self.instance.ordinal, self.instance.instance_id

    def spread_key(self, component: str) -> tuple[int, int, int, int, float, int, str]:
        """Sort key, smaller is better: fewest copies of the component, then the most free room."""
        less = (NO_RESOURCES - self.free()).by_scarcity()
        return (self._components.get(component, 0), self.count, *less, *self.slot_key())

    def pack_key(self) -> tuple[bool, int, int, float, int, str]:
        """Sort key, smaller is better: an instance in use, with the least free room."""
        return (self.count == 0, *self.free().by_scarcity(), *self.slot_key())


def empty_room(instance: InstanceObserved, *, own_bytes: int = 0) -> InstanceRoom:
    """An instance of the same type without any copy; `own_bytes`: memory of its process."""
    return InstanceRoom(replace(instance, taken_bytes=own_bytes), ())


def shortage(
    component: ComponentCopiesSpec, variant: str, rooms: Sequence[InstanceRoom]
) -> tuple[str, str]:
    """(reason, message for people) for a copy that fits into none of the rooms."""
    need = component.need.resources
    where = f"none of the {len(rooms)} running instances of variant {variant} has"
    if component.need.whole_instance:
        told = f"a copy of {component.told} needs an instance to itself, and {where} no copy"
        return "instances-taken", f"{CAPACITY_ERROR} {told}. Raise the instance count."
    if not any(need.fits(room.instance.resources) for room in rooms):
        told = f"a copy of {component.told} needs {_told(need)}, and {where} so much in all"
        return "larger-than-instance", f"{CAPACITY_ERROR} {told}. Choose a larger instance type."
    most = reduce(ComputeResources.at_least, [room.free() for room in rooms])
    missing = need.missing(most)
    reason = f"{missing[0]}-taken" if missing else "no-instance-has-all"
    told = f"a copy of {component.told} needs {_told(need)}, and {where} that free"
    hint = "Raise the instance count, or lower a number of copies."
    return reason, f"{CAPACITY_ERROR} {told} (at most {_told(most)}). {hint}"


def _set_aside(copies: Iterable[CopyObserved]) -> ComputeResources:
    return sum((copy.need.resources for copy in copies), NO_RESOURCES)


def _told(need: ComputeResources) -> str:
    memory_gib = max(need.memory_bytes / 2**30, 0.0)
    return (
        f"{memory_gib:.2f} GiB of memory, {max(need.cores, 0.0):g} cores and"
        f" {max(need.accelerators, 0)} accelerators"
    )
