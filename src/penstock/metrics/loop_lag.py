"""How late an event loop is: a timer that compares when it was to run with when it did.

Whoever keeps the loop keeps everybody waiting, so this is the one number that shows it, whatever
the cause: a parser, a large body, a driver, too few cores. A stall of `EVERY_S` or longer is always
seen; a shorter one as often as it covers a look.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final

EVERY_S: Final = 0.1
#: Of the maximum that is shown: one or two of these ago it is forgotten.
WINDOW_S: Final = 30.0
#: From what a timer costs to what clients give up after; 50 ms is what nothing may take.
EDGES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class LagObserved:
    """What one loop has shown so far."""

    counts: tuple[int, ...]  #: looks by upper bound, `EDGES_S` and then all others
    total_s: float
    max_s: float  #: of the last half minute to minute

    def to_dict(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "total_s": self.total_s, "max_s": self.max_s}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LagObserved | None:
        """Inverse of `to_dict`; None for what an instance of another version says."""
        counts = tuple(int(count) for count in fields.get("counts", ()))
        if len(counts) != len(EDGES_S) + 1:
            return None
        return cls(counts, float(fields["total_s"]), float(fields["max_s"]))


class LoopLag:
    """Watches the loop that it is started on. `start`, then `stop`."""

    def __init__(self) -> None:
        self._counts = [0] * (len(EDGES_S) + 1)
        self._total_s = 0.0
        self._max_s = self._max_before_s = 0.0
        self._window_began = 0.0
        self._planned = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._window_began = loop.time()
        self._plan(loop)

    def stop(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, lag_s: float, *, now: float) -> None:
        """One look was so late."""
        self._counts[bisect_left(EDGES_S, lag_s)] += 1
        self._total_s += lag_s
        if now >= self._window_began + WINDOW_S:
            self._window_began = now
            self._max_before_s, self._max_s = self._max_s, 0.0
        self._max_s = max(self._max_s, lag_s)

    def seen(self) -> LagObserved:
        return LagObserved(tuple(self._counts), self._total_s, max(self._max_s, self._max_before_s))

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._planned = loop.time() + EVERY_S
        self._timer = loop.call_at(self._planned, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self.note(max(0.0, now - self._planned), now=now)
        self._plan(loop)
