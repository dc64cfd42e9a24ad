"""Places for several copies at once, where taking them one by one leaves some without.

Vector bin packing with bins of different sizes: the largest copy first, each where it leaves least
(best fit decreasing). Where that fails and there are few, every arrangement is tried, by
backtracking; copies that need the same and rooms that have the same are tried in one order only. It
is NP-hard, so a search ends after a number of steps: with more copies than `ITEMS_MAX`, or when it
takes too long, an arrangement may be missed, never one invented.

It knows needs and free room; neither instances nor why a copy is wished.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.deployment.wish import CopyNeed

#: As many are searched for exhaustively. A step takes some ten microseconds, so that a search that
#: finds nothing ends within a tenth of a second.
ITEMS_MAX = 12
_STEPS_MAX = 5_000

_Vector = tuple[float, float, float]


def assign(needs: Sequence[CopyNeed], rooms: Sequence[CopyNeed | None]) -> list[int] | None:
    """The room of each copy, or None where no arrangement was found.

    Args:
        needs: of copies that share their instance.
        rooms: what each has free, less than nothing included; None takes no copy.
    """
    items = [_vector(need) for need in needs]
    free = [None if room is None else _vector(room) for room in rooms]
    order = _largest_first(items, free)
    found = _best_fit(items, order, free)
    if found is None and len(items) <= ITEMS_MAX and _may_fit(items, free):
        found = _Search(items, order, free).run()
    return found


def rooms_needed(
    needs: Sequence[CopyNeed], rooms: Sequence[CopyNeed | None], empty: CopyNeed, *, more_max: int
) -> int:
    """How many rooms as large as `empty` are to be added, so that as many copies have a place as
    can with `more_max`. What fits in no empty room does not count."""
    placeable = [one for one in needs if assign([one], [empty]) is not None]
    beside: list[CopyNeed | None] = list(rooms)
    extra = 0
    while extra < more_max:
        if assign(placeable, beside) is not None:
            break
        beside.append(empty)
        extra += 1
    return extra


def _best_fit(
    items: Sequence[_Vector], order: Sequence[int], rooms: Sequence[_Vector | None]
) -> list[int] | None:
    free = list(rooms)
    places = [0] * len(items)
    for item in order:
        fitting = [
            at for at, room in enumerate(free) if room is not None and _fits(items[item], room)
        ]
        if not fitting:
            return None
        place = min(fitting, key=lambda at: (_left(items[item], free[at]), at))
        free[place] = _less(free[place], items[item])
        places[item] = place
    return places


def _may_fit(items: Sequence[_Vector], rooms: Sequence[_Vector | None]) -> bool:
    """Not if together they ask for more than is free in all."""
    return all(
        sum(item[at] for item in items) <= sum(room[at] for room in rooms if room and room[at] > 0)
        for at in range(3)
    )


class _Search:
    """Depth first over the copies, the largest first."""

    def __init__(
        self, items: Sequence[_Vector], order: Sequence[int], rooms: Sequence[_Vector | None]
    ) -> None:
        self._items = items
        self._order = order
        self._free = list(rooms)
        self._places = [0] * len(items)
        self._steps = 0

    def run(self) -> list[int] | None:
        return self._places if self._place(0) else None

    def _place(self, at: int) -> bool:
        if at == len(self._order):
            return True
        item = self._order[at]
        first = 0
        if at and self._items[self._order[at - 1]] == self._items[item]:
            first = self._places[self._order[at - 1]]
        tried: set[_Vector] = set()
        for place in range(first, len(self._free)):
            room = self._free[place]
            if room is None or room in tried or not _fits(self._items[item], room):
                continue
            self._steps += 1
            if self._steps > _STEPS_MAX:
                return False
            tried.add(room)
            self._free[place] = _less(room, self._items[item])
            self._places[item] = place
            if self._place(at + 1):
                return True
            self._free[place] = room
        return False


def _largest_first(items: Sequence[_Vector], rooms: Sequence[_Vector | None]) -> list[int]:
    """By the largest share of what is free in all."""
    sums = [
        max(sum(room[at] for room in rooms if room is not None and room[at] > 0), 1e-9)
        for at in range(3)
    ]
    shares = [max(item[at] / sums[at] for at in range(3)) for item in items]
    return sorted(range(len(items)), key=lambda at: (-shares[at], items[at], at))


def _vector(need: CopyNeed) -> _Vector:
    return float(need.accelerators), float(need.memory_bytes), need.cores


def _fits(item: _Vector, room: _Vector) -> bool:
    """What a copy does not ask for it shares, however little is left."""
    return all(not asked or asked <= free for asked, free in zip(item, room, strict=True))


def _less(room: _Vector | None, item: _Vector) -> _Vector:
    assert room is not None, "only rooms that fit are taken"
    return room[0] - item[0], room[1] - item[1], room[2] - item[2]


def _left(item: _Vector, room: _Vector | None) -> _Vector:
    return _less(room, item)
