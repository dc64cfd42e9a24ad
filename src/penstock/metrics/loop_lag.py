"""How late an event loop is: a timer compares when it should have run with when it did.

Whoever blocks the loop makes everybody wait, so this one number shows it, whatever the cause: a
parser, a large body, a driver, too few cores. A stall of `EVERY_S` or longer is always noticed; a
shorter one only if it covers a timer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final

EVERY_S: Final = 0.1
#: A maximum is shown for one or two of these windows, in s.
WINDOW_S: Final = 30.0
#: From the cost of a timer to the patience of clients; nothing should block for more than 50 ms.
EDGES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class LagObserved:
    """The lag of one loop so far."""

    counts: tuple[int, ...]  #: number of looks per bucket of `EDGES_S`, and of longer ones last
    total_s: float
    max_s: float  #: maximum of the last 30 to 60 s

    def to_dict(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "total_s": self.total_s, "max_s": self.max_s}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LagObserved | None:
        """Inverse of `to_dict`; None for fields of another version's instance."""
        counts = tuple(int(count) for count in fields.get("counts", ()))
        if len(counts) != len(EDGES_S) + 1:
            return None
        return cls(counts, float(fields["total_s"]), float(fields["max_s"]))


class LoopLag:
    """Measures the event loop on which it is started. `start`, then `stop`."""

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
        """Records one look that was `lag_s` late."""
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
