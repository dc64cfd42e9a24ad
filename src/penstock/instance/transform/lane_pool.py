"""Batches of all spans of a copy on its lanes: those of the span that began first go first.

So a copy with two spans runs one, while the windows of the other are read and wait: where the first
one ends, no lane does. A lane takes one batch at a time and then queues up again behind whatever
else its thread was given: requests to the same copy are not kept waiting for the end of a span.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from penstock.instance.engines.lane_threads import LaneThreads

#: runs a batch on a lane; raises nothing
Run = Callable[[int], None]


class LanePool:
    """All methods on any thread."""

    def __init__(self, threads: LaneThreads, lanes: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._spans: list[deque[Run]] = []  #: batches that wait, of each span, in their order
        self._idle = list(range(lanes))

    def begin(self) -> SpanLanes:
        """For a span, which ends with `close`."""
        waiting: deque[Run] = deque()
        with self._lock:
            self._spans.append(waiting)
        return SpanLanes(self, waiting)

    def end(self, waiting: deque[Run]) -> None:
        with self._lock:
            self._spans = [each for each in self._spans if each is not waiting]

    def add(self, waiting: deque[Run], batches: Iterable[Run], *, first: bool) -> None:
        added = list(batches)
        with self._lock:
            if first:
                waiting.extendleft(reversed(added))
            else:
                waiting.extend(added)
            woken, self._idle = self._idle[: len(added)], self._idle[len(added) :]
        for lane in woken:
            self._submit(lane)

    def _submit(self, lane: int) -> None:
        self._threads.submit(lane, lambda: self._one(lane), _nothing)

    def _one(self, lane: int) -> None:
        with self._lock:
            waiting = next((each for each in self._spans if each), None)
            if waiting is None:
                self._idle.append(lane)
                return
            run = waiting.popleft()
        try:
            run(lane)
        finally:
            self._submit(lane)


class SpanLanes:
    """The lanes as one span has them."""

    def __init__(self, pool: LanePool, waiting: deque[Run]) -> None:
        self._pool = pool
        self._waiting = waiting

    def add(self, batches: Iterable[Run], *, first: bool = False) -> None:
        """`first`: before those of this span that wait."""
        self._pool.add(self._waiting, batches, first=first)

    def close(self) -> None:
        """All that was added has run."""
        self._pool.end(self._waiting)


def _nothing(result: object) -> None:
    return None
