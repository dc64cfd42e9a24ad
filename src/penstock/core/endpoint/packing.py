"""Places for several copies at once, where placing them one by one leaves some without.

This is vector bin packing with bins of different sizes: the largest copy first, each where it
leaves least free (best fit decreasing). Where that fails and there are few copies, backtracking
tries every arrangement; copies with the same need and rooms with the same free amount are tried in
one order only. The problem is NP-hard, so the search has a bound on copies (`ITEMS_MAX`) and steps:
it may miss an arrangement, but never returns a wrong one.

It knows needs and free room; neither instances nor why a copy is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import truediv

from penstock.core.resources import NO_RESOURCES, ComputeResources

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
