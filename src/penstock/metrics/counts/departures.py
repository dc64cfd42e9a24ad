"""Variants and components that are gone, on their way out of every table.

When one is withdrawn its last requests may still be answered, other processes have counts of it
that they have not told yet, and a scraper has not seen its last values. So its counts stay for
`KEPT_S`, and as long as it has requests in flight. Once they are dropped they stay away: a late
word of another process must not bring them back.
"""

from __future__ import annotations

from typing import Final

#: Three scrapes of the shipped prometheus.yml, which takes one each 10 s.
KEPT_S: Final = 30.0

#: Those dropped are remembered while deltas of other processes may still name them.
_DROPPED_MAX: Final = 1000

Pool = tuple[str, ...]  #: (endpoint, variant), or with a component behind them


class Departures:
    """`leave`, then `due`, then `dropped`; `back` at any time."""

    def __init__(self) -> None:
        self._leaving: dict[Pool, float] = {}  #: -> wall time when it was first seen to be gone
        self._dropped: dict[Pool, None] = {}  #: oldest first

    def __contains__(self, pool: Pool) -> bool:
        """Whether it, or its variant, was dropped and has not come back."""
        return pool in self._dropped or pool[:2] in self._dropped

    def leave(self, pool: Pool, now: float) -> None:
        """It is gone; saying so again changes nothing."""
        self._leaving.setdefault(pool, now)

    def due(self, now: float) -> list[Pool]:
        """Those that have been kept for long enough."""
        for pool, since in self._leaving.items():
            self._leaving[pool] = min(since, now)  # a clock that was set back starts it again
        return [pool for pool, since in self._leaving.items() if now >= since + KEPT_S]

    def dropped(self, pool: Pool) -> None:
        """Nothing of it is left, nor of a variant's components."""
        for one in [one for one in self._leaving if pool in (one, one[:2])]:
            del self._leaving[one]
        self._dropped[pool] = None
        if len(self._dropped) > _DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]

    def back(self, pool: Pool) -> None:
        """It is there, again perhaps."""
        if self._leaving or self._dropped:
            for one in (pool, pool[:2]):
                self._leaving.pop(one, None)
                self._dropped.pop(one, None)
