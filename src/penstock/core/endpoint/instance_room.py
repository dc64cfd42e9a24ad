"""What instances have free for copies, places for several copies at once, and what is missing.

Free memory has two limits: what is set aside for the copies, and what the operating system
measures. Copies that have outgrown what was set aside leave less free; a copy that is being loaded
has not taken yet what is set aside for it. Cores and accelerators are set aside as requested.

`assign` finds places where placing copies one by one leaves some without. This is vector bin
packing with bins of different sizes: the largest copy first, each where it leaves least free (best
fit decreasing). Where that fails and there are few copies, backtracking tries every arrangement;
copies with the same need and rooms with the same free amount are tried in one order only. The
problem is NP-hard, so the search has a bound on copies (`ITEMS_MAX`) and steps: it may miss an
arrangement, but never returns a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import truediv

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

    def free_to_share(self) -> ComputeResources | None:
        """The same; None where a copy has the instance to itself."""
        return None if self._whole else self.free()

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


#: Copies that are searched for exhaustively. A step takes some ten microseconds, so a search
#: without a result ends within a tenth of a second.
ITEMS_MAX = 12
_STEPS_MAX = 5_000


def assign(
    needs: Sequence[ComputeResources], rooms: Sequence[ComputeResources | None]
) -> list[int] | None:
    """The room of each copy, or None where no arrangement was found.

    Args:
        needs: needs of copies that share their instance.
        rooms: free resources of each room, may be negative; None takes no copy.
    """
    in_all = sum((room.at_least(NO_RESOURCES) for room in rooms if room is not None), NO_RESOURCES)
    order = _largest_first(needs, in_all)
    found = _best_fit(needs, order, rooms)
    if found is None and len(needs) <= ITEMS_MAX and sum(needs, NO_RESOURCES).fits(in_all):
        found = _Search(needs, order, rooms).run()
    return found


def rooms_needed(
    needs: Sequence[ComputeResources],
    rooms: Sequence[ComputeResources | None],
    empty: ComputeResources,
    *,
    more_max: int,
) -> int:
    """How many rooms as large as `empty` must be added, so that as many copies have a place as is
    possible with `more_max`. A copy that fits into no empty room does not count."""
    placeable = [one for one in needs if one.fits(empty)]
    beside = list(rooms)
    extra = 0
    while extra < more_max:
        if assign(placeable, beside) is not None:
            break
        beside.append(empty)
        extra += 1
    return extra


def _best_fit(
    needs: Sequence[ComputeResources],
    order: Sequence[int],
    rooms: Sequence[ComputeResources | None],
) -> list[int] | None:
    free = list(rooms)
    places = [0] * len(needs)
    for item in order:
        left = {
            at: room - needs[item]
            for at, room in enumerate(free)
            if room is not None and needs[item].fits(room)
        }
        if not left:
            return None
        place = min(left, key=lambda at: (left[at].by_scarcity(), at))
        free[place] = left[place]
        places[item] = place
    return places


class _Search:
    """Depth-first search over the copies, the largest first."""

    def __init__(
        self,
        needs: Sequence[ComputeResources],
        order: Sequence[int],
        rooms: Sequence[ComputeResources | None],
    ) -> None:
        self._needs = needs
        self._order = order
        self._free = list(rooms)
        self._places = [0] * len(needs)
        self._steps = 0

    def run(self) -> list[int] | None:
        return self._places if self._place(0) else None

    def _place(self, at: int) -> bool:
        if at == len(self._order):
            return True
        item = self._order[at]
        need = self._needs[item]
        first = 0
        if at and self._needs[self._order[at - 1]] == need:
            first = self._places[self._order[at - 1]]
        tried: set[ComputeResources] = set()
        for place in range(first, len(self._free)):
            room = self._free[place]
            if room is None or room in tried or not need.fits(room):
                continue
            self._steps += 1
            if self._steps > _STEPS_MAX:
                return False
            tried.add(room)
            self._free[place] = room - need
            self._places[item] = place
            if self._place(at + 1):
                return True
            self._free[place] = room
        return False


def _largest_first(needs: Sequence[ComputeResources], in_all: ComputeResources) -> list[int]:
    """Sorted by the largest share of what is free in all rooms."""
    sums = [max(each, 1e-9) for each in in_all.by_scarcity()]
    sizes = [need.by_scarcity() for need in needs]
    shares = [max(map(truediv, size, sums)) for size in sizes]
    return sorted(range(len(needs)), key=lambda at: (-shares[at], sizes[at], at))
