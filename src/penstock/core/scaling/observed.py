"""What is seen of a target, each second, and what the last minutes of it say.

A window is asked for what it holds since a moment. What it does not cover is unknown, and unknown
is not idle: `covers` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

KEPT_S: Final = 1200.0  #: longer than the alarms of policies look back by default


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadObserved:
    """One look at a target."""

    at: float  #: wall seconds
    capacity: int  #: instances or copies that are wished
    ready: int  #: of them, those that answer
    in_flight: int = 0  #: requests, queued and held ones included
    arrivals: int = 0  #: requests since the server's start
    errors: int = 0  #: of them, those that ended with an error that is not the caller's
    scalable: bool = True  #: false while something else is being rolled out
    settled: bool = True  #: what was wished last has been reached, or given up
    failure: str = ""  #: why it was given up
    out_of_reach: bool = False  #: it stays wished, and what has room serves
    time_to_ready_s: float | None = None  #: measured: from a start to the first request

    @property
    def short(self) -> bool:
        """Fewer answer than should: one crashed, or is still starting. Copies that nothing has room
        for are not waited for."""
        return self.ready < self.capacity and not (self.out_of_reach and self.ready)


class LoadWindow:
    """The last looks at one target, oldest first."""

    def __init__(self) -> None:
        self._seen: deque[LoadObserved] = deque()

    def add(self, observed: LoadObserved) -> None:
        """A look from before the last one is dropped: clocks are set back."""
        while self._seen and self._seen[-1].at > observed.at:
            self._seen.pop()
        self._seen.append(observed)
        while self._seen[0].at < observed.at - KEPT_S:
            self._seen.popleft()

    def latest(self) -> LoadObserved | None:
        return self._seen[-1] if self._seen else None

    def covers(self, since: float) -> bool:
        """Whether it was looked at all the time since then."""
        return bool(self._seen) and self._seen[0].at <= since

    def since(self, moment: float) -> list[LoadObserved]:
        """Oldest first; with the one that held at that moment."""
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
        """Fewer answered than were wished at some time: one crashed, or was still starting."""
        return any(one.short for one in self.since(since))

    def arrivals(self, since: float) -> int:
        return _grown(one.arrivals for one in self.since(since))

    def errors(self, since: float) -> int:
        return _grown(one.errors for one in self.since(since))


def _grown(counts: Iterable[int]) -> int:
    """By how much a counter grew; one that begins anew counts from zero."""
    total = 0
    before: int | None = None
    for count in counts:
        if before is not None:
            total += count - before if count >= before else count
        before = count
    return total
