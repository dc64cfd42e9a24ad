"""Which names get one of a few places: those that are called most.

For things that are kept per name for a few names and together for all others, such as time series.
A name takes a free place with its first call, and another one's place when it has been called twice
as often: so places rarely change, and the data of a name stays in one piece. All counts halve every
hour, so that the past does not decide for ever. A bounded number of names without a place is
counted (the rule of "space saving": Metwally, Agrawal, El Abbadi, ICDT 2005, without its error
term).
"""

from __future__ import annotations

from penstock.errors import CallerError

_HALVE_EVERY_S = 3600.0
_OFTENER = 2.0
_KNOWN_PER_PLACE = 20
_FORGOTTEN_BELOW = 0.5


class MostCalled:
    """Call `called`, then `has_place`. A call costs little, unless its name is new."""

    __slots__ = ("_counts", "_halved_at", "_placed", "_places_max")

    def __init__(self, places_max: int) -> None:
        if places_max < 1:
            raise CallerError("most-called", f"places_max is {places_max}: it is at least 1")
        self._places_max = places_max
        self._counts: dict[str, float] = {}
        self._placed: set[str] = set()
        self._halved_at: float | None = None

    def called(self, name: str, count: int = 1, *, now: float) -> str | None:
        """Counts calls of `name`. Returns the name that loses its place to it, if one does."""
        self._age(now)
        if count <= 0:
            return None
        counts = self._counts
        count_now = counts[name] = counts.get(name, 0.0) + count
        if name in self._placed:
            return None
        if len(self._placed) < self._places_max:
            self._placed.add(name)
            return None
        self._bound()
        rarest = min(self._placed, key=lambda placed: (counts.get(placed, 0.0), placed))
        if count_now < _OFTENER * counts.get(rarest, 0.0):
            return None
        self._placed.remove(rarest)
        self._placed.add(name)
        return rarest

    def has_place(self, name: str) -> bool:
        return name in self._placed

    def snapshot(self) -> list[tuple[str, float]]:
        """(name, calls) of the names with a place, the most called first."""
        placed = ((name, self._counts.get(name, 0.0)) for name in self._placed)
        return sorted(placed, key=lambda row: (-row[1], row[0]))

    def check_invariants(self) -> None:
        """Raises AssertionError if there are more places or names than there may be."""
        assert len(self._placed) <= self._places_max, "more names than places"
        assert len(self._counts) <= self._known_max + 1, "more names than are to be known"

    @property
    def _known_max(self) -> int:
        return self._places_max * _KNOWN_PER_PLACE

    def _age(self, now: float) -> None:
        if self._halved_at is None:
            self._halved_at = now
        elif now >= self._halved_at + _HALVE_EVERY_S:
            self._halved_at = now
            halved = ((name, count / 2) for name, count in self._counts.items())
            self._counts = {name: count for name, count in halved if count >= _FORGOTTEN_BELOW}

    def _bound(self) -> None:
        """Forgets the rarest name without a place, if there are too many."""
        if len(self._counts) > self._known_max:
            unplaced = (name for name in self._counts if name not in self._placed)
            del self._counts[min(unplaced, key=lambda name: (self._counts[name], name))]
