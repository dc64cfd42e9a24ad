"""What one instance has free for copies, and what is missing where a copy fits on none.

Memory is looked at twice: what is set aside for the copies, and what the operating system measures.
Copies that have outgrown what was set aside leave less; one that is being loaded has not taken yet
what is set aside for it. Cores and accelerators are set aside as they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.core.deployment.endpoint_state import (
    DRAINED,
    DRAINING,
    ENDING,
    LOADING,
    UNLOADING,
    CopyObserved,
    InstanceObserved,
)
from penstock.core.deployment.wish import ComponentWish, CopyNeed
from penstock.core.machine.room import CAPACITY_ERROR

#: Phases of copies that will leave room, or may: who loads may keep less than was set aside.
_UNSETTLED = (LOADING, DRAINING, DRAINED, UNLOADING, ENDING)


class InstanceRoom:
    """One running instance with its copies, and those that a decision adds."""

    __slots__ = ("_components", "_held", "_settled", "_settled_count", "_whole", "copies", "count",
                 "instance")  # fmt: skip

    def __init__(self, instance: InstanceObserved, copies: Iterable[CopyObserved]) -> None:
        self.instance = instance
        self.copies = tuple(copies)
        self.count = len(self.copies)  #: those that a decision adds included
        self._whole = any(copy.need.whole_instance for copy in self.copies)
        self._components: dict[str, int] = {}
        for copy in self.copies:
            self._components[copy.component] = self._components.get(copy.component, 0) + 1
        settled = [copy.need for copy in self.copies if copy.phase not in _UNSETTLED]
        self._settled, self._settled_count = _sum(settled), len(settled)
        loading = _sum([copy.need for copy in self.copies if copy.phase == LOADING])
        loaded = _sum([copy.need for copy in self.copies if copy.phase != LOADING])
        self._held = CopyNeed(
            memory_bytes=max(instance.taken_bytes, loaded.memory_bytes) + loading.memory_bytes,
            cores=loaded.cores + loading.cores,
            accelerators=loaded.accelerators + loading.accelerators,
        )

    @property
    def whole(self) -> bool:
        """A copy has it to itself."""
        return self._whole

    def fits(self, need: CopyNeed) -> bool:
        if need.whole_instance:
            return self.count == 0
        return not self._whole and _fits(need, self._held, self.instance)

    def may_fit_later(self, need: CopyNeed) -> bool:
        """Once what is on its way, in or out, has come to its end."""
        if self._settled_count == self.count:
            return False
        if need.whole_instance:
            return self._settled_count == 0
        return _fits(need, self._settled, self.instance)

    def add(self, component: ComponentWish) -> None:
        """A copy that is about to be loaded here."""
        self.count += 1
        self._whole = self._whole or component.need.whole_instance
        self._components[component.name] = self._components.get(component.name, 0) + 1
        self._held = _sum([self._held, component.need])

    def free(self) -> CopyNeed:
        """Less than nothing where copies have outgrown the instance."""
        return CopyNeed(
            memory_bytes=self.instance.memory_bytes - self._held.memory_bytes,
            cores=self.instance.cores - self._held.cores,
            accelerators=self.instance.accelerators - self._held.accelerators,
        )

    def slot_key(self) -> tuple[int, str]:
        return self.instance.ordinal, self.instance.instance_id

    def spread_key(self, component: str) -> tuple[int, int, int, int, float, int, str]:
        """Smaller is better: far from copies of the same component, then where most is free."""
        free = self.free()
        return (
            self._components.get(component, 0),
            self.count,
            -free.accelerators,
            -free.memory_bytes,
            -free.cores,
            *self.slot_key(),
        )

    def pack_key(self) -> tuple[bool, int, int, float, int, str]:
        """Smaller is better: an instance that is in use, and has least left."""
        free = self.free()
        return (
            self.count == 0,
            free.accelerators,
            free.memory_bytes,
            free.cores,
            *self.slot_key(),
        )


def empty_room(instance: InstanceObserved, *, own_bytes: int = 0) -> InstanceRoom:
    """An instance of the same type without any copy; `own_bytes`: what its process takes."""
    return InstanceRoom(replace(instance, taken_bytes=own_bytes), ())


def shortage(
    component: ComponentWish, variant: str, rooms: Sequence[InstanceRoom]
) -> tuple[str, str]:
    """(reason, message) for people, of a copy that none of the rooms has a place for."""
    need = component.need
    where = f"none of the {len(rooms)} running instances of variant {variant} has"
    if need.whole_instance:
        told = f"a copy of {component.told} needs an instance to itself, and {where} no copy"
        return "instances-taken", f"{CAPACITY_ERROR} {told}. Raise the instance count."
    if not any(_fits(need, CopyNeed(), room.instance) for room in rooms):
        told = f"a copy of {component.told} needs {_told(need)}, and {where} so much in all"
        return "larger-than-instance", f"{CAPACITY_ERROR} {told}. Choose a larger instance type."
    free = [room.free() for room in rooms]
    most = CopyNeed(
        memory_bytes=max(one.memory_bytes for one in free),
        cores=max(one.cores for one in free),
        accelerators=max(one.accelerators for one in free),
    )
    if need.accelerators > most.accelerators:
        reason = "accelerators-taken"
    elif need.memory_bytes > most.memory_bytes:
        reason = "memory-taken"
    elif need.cores > most.cores:
        reason = "cores-taken"
    else:
        reason = "no-instance-has-all"
    told = f"a copy of {component.told} needs {_told(need)}, and {where} that free"
    hint = "Raise the instance count, or lower a number of copies."
    return reason, f"{CAPACITY_ERROR} {told} (at most {_told(most)}). {hint}"


def _fits(need: CopyNeed, held: CopyNeed, instance: InstanceObserved) -> bool:
    """What a copy does not ask for it shares, however much of it is taken."""
    asked = (
        (need.memory_bytes, held.memory_bytes, instance.memory_bytes),
        (need.cores, held.cores, instance.cores),
        (need.accelerators, held.accelerators, instance.accelerators),
    )
    return all(not more or taken + more <= given for more, taken, given in asked)


def _sum(needs: Sequence[CopyNeed]) -> CopyNeed:
    return CopyNeed(
        memory_bytes=sum(need.memory_bytes for need in needs),
        cores=sum(need.cores for need in needs),
        accelerators=sum(need.accelerators for need in needs),
    )


def _told(need: CopyNeed) -> str:
    memory_gib = max(need.memory_bytes / 2**30, 0.0)
    return (
        f"{memory_gib:.2f} GiB of memory, {max(need.cores, 0.0):g} cores and"
        f" {max(need.accelerators, 0)} accelerators"
    )
