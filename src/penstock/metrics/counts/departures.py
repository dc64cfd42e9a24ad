"""Keeps the counts of removed variants and components for a while, then drops them from every
table.

When one is withdrawn, its last requests may still be answered, other processes have counts of it
that they have not reported, and a scraper has not read its last values. So its counts stay for
`KEPT_S`, and as long as it has requests in flight. Once they are dropped they stay away: a late
report of another process must not bring them back.
"""

from __future__ import annotations

from typing import Final

#: Three scrapes of the shipped prometheus.yml, which scrapes every 10 s.
KEPT_S: Final = 30.0

#: Dropped pools that are remembered, since deltas of other processes may still name them.
_DROPPED_MAX: Final = 1000

Pool = tuple[str, ...]  #: (endpoint, variant), or (endpoint, variant, component)


class Departures:
    """`leave`, then `due`, then `dropped`; `back` at any time."""

    def __init__(self) -> None:
        #: pool -> wall time when it was first found to be gone
        self._leaving: dict[Pool, float] = {}
        self._dropped: dict[Pool, None] = {}  #: oldest first

    def __contains__(self, pool: Pool) -> bool:
        """Whether the pool, or its variant, was dropped and has not come back."""
        return pool in self._dropped or pool[:2] in self._dropped

    def leave(self, pool: Pool, now: float) -> None:
        """The pool is gone. A second call changes nothing."""
        self._leaving.setdefault(pool, now)

    def due(self, now: float) -> list[Pool]:
        """The pools that were kept for long enough."""
        for pool, since in self._leaving.items():
            # If the clock was set back, the time starts again.
            self._leaving[pool] = min(since, now)
        return [pool for pool, since in self._leaving.items() if now >= since + KEPT_S]

    def dropped(self, pool: Pool) -> None:
        """The pool's counts were removed, and a variant's components with it."""
        for one in [one for one in self._leaving if pool in (one, one[:2])]:
            del self._leaving[one]
        self._dropped[pool] = None
        if len(self._dropped) > _DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]

    def back(self, pool: Pool) -> None:
        """The pool exists, perhaps again."""
        if self._leaving or self._dropped:
            for one in (pool, pool[:2]):
                self._leaving.pop(one, None)
                self._dropped.pop(one, None)
