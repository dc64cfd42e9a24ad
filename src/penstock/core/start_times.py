"""How soon a copy can be ready, by the last starts that were measured.

Of each model its last starts are kept, from the moment when the copy (or the instance that it
brings along) was asked for. The fastest of them is what a start may take again: the one after a
download, or on a machine that was busy, says little of the next. So whoever refuses by it refuses
only what no start could serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final

KEPT: Final = 5  #: starts of each model


class StartTimes:
    """Of one endpoint. Keys tell its models apart."""

    __slots__ = ("_took_s",)

    def __init__(self) -> None:
        self._took_s: dict[Hashable, deque[float]] = {}

    def note(self, key: Hashable, took_s: float) -> None:
        """A copy is ready, `took_s` after it was asked for."""
        self._took_s.setdefault(key, deque(maxlen=KEPT)).append(took_s)

    def fastest_s(self, key: Hashable) -> float | None:
        """None: none was seen."""
        seen = self._took_s.get(key)
        return min(seen) if seen else None

    def ready_in_s(self, key: Hashable, *, asked_at: Iterable[float], now: float) -> float | None:
        """How long until a copy can be ready at the earliest; None: not known.

        Args:
            asked_at: when those were asked for that are on their way; none: one is asked for now.
        """
        fastest_s = self.fastest_s(key)
        if fastest_s is None:
            return None
        return max(0.0, min(asked_at, default=now) + fastest_s - now)

    def keep(self, keys: Iterable[Hashable]) -> None:
        """Others are gone for good."""
        kept = set(keys)
        self._took_s = {key: seen for key, seen in self._took_s.items() if key in kept}
