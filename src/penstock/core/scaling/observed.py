"""Observations of a target, one each second, and what those of the last minutes show.

A window is asked what it holds since a moment. What it does not cover is unknown, and unknown is
not idle: `covers` tells the two apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

KEPT_S: Final = 1200.0  #: s; longer than the alarms of policies look back by default


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadObserved:
    """One observation of a target."""

    at: float  #: wall s
    capacity: int  #: the specified number of instances or copies
    ready: int  #: number of them that answer
    in_flight: int = 0  #: requests in flight, queued and held ones included
    arrivals: int = 0  #: requests since the server's start
    errors: int = 0  #: number of them that ended with an error other than the caller's
    scalable: bool = True  #: False while something else is being rolled out
    settled: bool = True  #: the last specified count was reached, or given up
    failure: str = ""  #: why it was given up; empty: it was not
    #: the count stays specified, but the machine has no room for all of it
    out_of_reach: bool = False
    #: measured s from a start to a copy that answers; None: not known
    time_to_ready_s: float | None = None

    @property
    def short(self) -> bool:
        """Whether fewer answer than should: one crashed, or is still starting. Copies for which
        there is no room do not count."""
        return self.ready < self.capacity and not (self.out_of_reach and self.ready)


class LoadWindow:
    """The last observations of one target, oldest first."""

    def __init__(self) -> None:
        self._seen: deque[LoadObserved] = deque()

    def add(self, observed: LoadObserved) -> None:
        """Adds an observation. One from before the last is dropped: clocks are set back."""
        while self._seen and self._seen[-1].at > observed.at:
            self._seen.pop()
        self._seen.append(observed)
        while self._seen[0].at < observed.at - KEPT_S:
            self._seen.popleft()

    def latest(self) -> LoadObserved | None:
        return self._seen[-1] if self._seen else None

    def covers(self, since: float) -> bool:
        """Whether there were observations all the time since then."""
        return bool(self._seen) and self._seen[0].at <= since

    def since(self, moment: float) -> list[LoadObserved]:
        """Observations since then, oldest first, with the one that was valid at that moment."""
        found = []
        for one in reversed(self._seen):
            found.append(one)
            if one.at <= moment:
                break
        return found[::-1]

    def ready_min(self, since: float) -> int:
        return min((one.ready for one in self.since(since)), default=0)

    def ready_max(self, since: float) -> int:
        return max((one.ready for one in self.since(since)), default=0)

    def was_short(self, since: float) -> bool:
        """Whether fewer answered than should at some time: one crashed, or was starting."""
        return any(one.short for one in self.since(since))

    def arrivals(self, since: float) -> int:
        return _grown(one.arrivals for one in self.since(since))

    def errors(self, since: float) -> int:
        return _grown(one.errors for one in self.since(since))


def _grown(counts: Iterable[int]) -> int:
    """By how much a counter grew; one that restarted counts from zero."""
    total = 0
    before: int | None = None
    for count in counts:
        if before is not None:
            total += count - before if count >= before else count
        before = count
    return total
