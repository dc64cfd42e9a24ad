"""Which copies are on which instance: those to keep, to load, to remove, and those refused.

A copy needs memory, cores and accelerators of one instance, or a whole instance. The free room of
an instance is what it was given, less what is set aside for its copies. If the operating system
measures more memory than was set aside, the difference is subtracted too. Among the instances that
have room:

    SPREAD   fewest copies of the component, then fewest copies of any, then most room
    BINPACK  least room left: a used instance is filled before an empty one is used

Ties go to the lower slot, then to the identifier. Where this leaves copies without room one by one,
a search looks for places for all of them at once (`assign`). If a component has
too many copies, the least advanced are removed first, then those on the instance that the strategy
would fill last (SPREAD: the one with most copies of the component, BINPACK: the one with fewest of
any), then those with the fewest requests, then those in the highest slot.

Where no instance has room, a copy waits while instances are still starting, or while copies that
leave or load may free enough. Otherwise the lowest free slot is refused, with what is missing.
Slots behind it would get the same answer, so they wait for it. Copies are never moved: to have
fewer instances, the caller stops one.

It knows what is on the given instances, and neither why these are kept nor what routes say.
The strategies are those of SageMaker's InferenceComponentSchedulingConfig.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.core.deployment.capacity_spec import BINPACK, ComponentCopiesSpec, VariantCapacitySpec
from penstock.core.deployment.endpoint_state import (
    ENDING,
    LOADING,
    LOST,
    READY,
    RUNNING,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    InstanceObserved,
    LoadCopy,
    RefuseCopy,
    SlotFailure,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import FreeSlot, ReconcileSpec, earliest, free_slots
from penstock.core.endpoint.endings import retire_copy
from penstock.core.endpoint.instance_room import (
    ITEMS_MAX,
    InstanceRoom,
    assign,
    empty_room,
    shortage,
)

#: Of too many copies, the most advanced (lowest number) are kept.
_PROGRESS = {READY: 0, LOST: 1, LOADING: 2}
#: Per component: copies without room that a search is made for.
_SEARCHED_MAX = ITEMS_MAX + 1


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    kept: tuple[CopyObserved, ...]  #: as many as the spec has, in any phase
    loads: tuple[LoadCopy, ...]
    refusals: tuple[RefuseCopy, ...]
    #: to be carried out after routes without these copies are published
    retires: tuple[DrainCopy | UnloadCopy, ...]
    next_deadline: float | None  #: when a slot's pause is over


def decide(
    desired: VariantCapacitySpec,
    instances: Iterable[InstanceObserved],
    observed: EndpointObserved,
    *,
    now: float,
    spec: ReconcileSpec,
) -> PlacementDecision:
    """Decides the copies of one variant, on those of its instances that are kept."""
    turn = _PlacementTurn(desired, instances, observed, now, spec)
    for component in desired.components:
        turn.place(component)
    turn.rearrange()
    return turn.decision()


@dataclass(slots=True)
class _ToLoad:
    """A copy to be loaded; `instance` is None while none has room."""

    component: ComponentCopiesSpec
    slot: FreeSlot
    instance: InstanceObserved | None = None

    def action(self, generation: int) -> LoadCopy:
        assert self.instance is not None, "only what has a place is loaded"
        component, slot = self.component, self.slot
        reason = "replace-failed" if slot.failed and not slot.refused else "copy-count"
        if component.need.whole_instance:
            reason = "instance-running"
        return LoadCopy(self.instance.instance_id, component.name, generation, slot.ordinal, reason)


class _PlacementTurn:
    """One call of `decide`: the free room of the instances as they fill."""

    def __init__(
        self,
        desired: VariantCapacitySpec,
        instances: Iterable[InstanceObserved],
        observed: EndpointObserved,
        now: float,
        spec: ReconcileSpec,
    ) -> None:
        self._copies = observed.copies_by_instance()
        self._running = [one for one in instances if one.phase == RUNNING]
        self._desired = desired
        self._now = now
        self._spec = spec
        self._rooms = self._as_they_are()
        self._room = {room.instance.instance_id: room for room in self._rooms}
        self._there = [copy for room in self._rooms for copy in room.copies]
        self._by_component: dict[str, list[CopyObserved]] = {}
        for copy in self._there:
            if copy.generation == desired.generation:
                self._by_component.setdefault(copy.component, []).append(copy)
        self._failures: dict[str, dict[int, SlotFailure]] = {}
        for failure in observed.failures:
            if failure.variant == desired.name and failure.generation == desired.generation:
                self._failures.setdefault(failure.component, {})[failure.ordinal] = failure
        self._kept: list[CopyObserved] = []
        self._loads: list[_ToLoad] = []
        #: copies that are due and found no room, a bounded number per component
        self._left: list[_ToLoad] = []
        self._refusals: list[RefuseCopy] = []
        self._deadline: float | None = None

    def place(self, component: ComponentCopiesSpec) -> None:
        """Keeps the copies of a component that may stay, and loads missing ones."""
        mine = self._by_component.get(component.name, [])
        kept = self._keep(component, [copy for copy in mine if copy.phase in _PROGRESS])
        self._kept += kept
        taken = {copy.ordinal for copy in kept}
        taken |= {copy.ordinal for copy in mine if copy.phase == ENDING}
        pausing, no_room = False, 0
        for slot in free_slots(
            component.copies,
            taken,
            self._failures.get(component.name, {}),
            self._spec,
            missing=component.copies - len(kept),
        ):
            pauses = slot.due is not None and self._now < slot.due
            if pauses and slot.due is not None:
                self._deadline = earliest(self._deadline, slot.due)
            if pauses and not slot.refused:
                pausing = True
                continue
            room = self._choose(component) if not no_room else None
            if room is not None:
                room.add(component)
                self._loads.append(_ToLoad(component, slot, room.instance))
                continue
            if not no_room and not pausing and not pauses:
                self._refuse(component, slot)
            no_room += 1
            self._left.append(_ToLoad(component, slot))
            if no_room == _SEARCHED_MAX:
                return

    def rearrange(self) -> None:
        """Where copies found no room one by one, searches for places for all of them."""
        empty = [empty_room(one) for one in self._running]
        fitting = [
            one for one in self._left if any(room.fits(one.component.need) for room in empty)
        ]
        wanted = [*self._loads, *fitting]
        if not fitting or any(one.component.need.whole_instance for one in wanted):
            return
        rooms = self._as_they_are()
        places = assign(
            [one.component.need.resources for one in wanted],
            [room.free_to_share() for room in rooms],
        )
        if places is None:
            return
        for load, place in zip(wanted, places, strict=True):
            load.instance = rooms[place].instance
        self._loads = wanted
        found = {(one.component.name, one.slot.ordinal) for one in fitting}
        self._refusals = [
            one for one in self._refusals if (one.component, one.ordinal) not in found
        ]

    def decision(self) -> PlacementDecision:
        kept = {copy.copy for copy in self._kept}
        named = {component.name for component in self._desired.components}
        retires: list[DrainCopy | UnloadCopy] = []
        for copy in self._there:
            if copy.copy not in kept:
                current = copy.generation == self._desired.generation and copy.component in named
                retires += retire_copy(copy, "copy-count" if current else "old-generation")
        return PlacementDecision(
            tuple(self._kept),
            tuple(one.action(self._desired.generation) for one in self._loads),
            tuple(self._refusals),
            tuple(retires),
            self._deadline,
        )

    def _as_they_are(self) -> list[InstanceRoom]:
        return [InstanceRoom(one, self._copies.get(one.instance_id, ())) for one in self._running]

    def _keep(
        self, component: ComponentCopiesSpec, alive: Collection[CopyObserved]
    ) -> list[CopyObserved]:
        """At most as many as the spec has, the most advanced first."""
        kept = sorted(alive, key=lambda one: (_PROGRESS[one.phase], one.ordinal, one.copy))
        while len(kept) > max(component.copies, 0):
            beside = Counter(copy.instance_id for copy in kept)
            kept.remove(max(kept, key=lambda one: self._surplus_key(component, one, beside)))
        return kept

    def _surplus_key(
        self, component: ComponentCopiesSpec, copy: CopyObserved, beside: Mapping[str, int]
    ) -> tuple[int, int, int, int, int]:
        """Sort key: the largest is removed first. `beside`: the component's remaining copies, by
        instance."""
        if component.strategy == BINPACK:
            crowd = -self._room[copy.instance_id].count
        else:
            crowd = beside[copy.instance_id]
        return _PROGRESS[copy.phase], crowd, -copy.outstanding, copy.ordinal, copy.copy

    def _choose(self, component: ComponentCopiesSpec) -> InstanceRoom | None:
        fitting = [room for room in self._rooms if room.fits(component.need)]
        if component.need.whole_instance:
            return min(fitting, key=InstanceRoom.slot_key, default=None)
        if component.strategy == BINPACK:
            return min(fitting, key=InstanceRoom.pack_key, default=None)
        return min(fitting, key=lambda room: room.spread_key(component.name), default=None)

    def _refuse(self, component: ComponentCopiesSpec, slot: FreeSlot) -> None:
        """Refuses a slot with what is missing, if waiting would not help."""
        if not self._rooms or len(self._rooms) < self._desired.instances:
            return
        if any(room.may_fit_later(component.need) for room in self._rooms):
            return
        reason, failure = shortage(component, self._desired.name, self._rooms)
        self._refusals.append(
            RefuseCopy(
                self._desired.name,
                self._desired.generation,
                component.name,
                slot.ordinal,
                reason,
                failure,
            )
        )
