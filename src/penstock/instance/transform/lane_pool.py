"""Batches of all spans of a copy on its lanes: those of the span that began first go first.

So a copy with two spans runs one, while the windows of the other are read and wait: when the first
span ends, no lane is idle. A lane takes one batch at a time, and then queues after all other work
of its thread: requests to the same copy do not wait for the end of a span.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from penstock.instance.engines.lane_threads import LaneThreads

#: Runs a batch on a lane; raises nothing.
Run = Callable[[int], None]


class LanePool:
    """All methods may be called on any thread."""

    def __init__(self, threads: LaneThreads, lanes: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        #: Waiting batches of each span, in the order of the spans
        self._spans: list[deque[Run]] = []
        self._idle = list(range(lanes))

    def begin(self) -> SpanLanes:
        """The lanes for a new span, which ends with `close`."""
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
    """The lanes for one span."""

    def __init__(self, pool: LanePool, waiting: deque[Run]) -> None:
        self._pool = pool
        self._waiting = waiting

    def add(self, batches: Iterable[Run], *, first: bool = False) -> None:
        """`first`: before waiting batches of this span."""
        self._pool.add(self._waiting, batches, first=first)

    def close(self) -> None:
        """Call this when all added batches have run."""
        self._pool.end(self._waiting)


def _nothing(result: object) -> None:
    return None
