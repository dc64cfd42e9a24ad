"""Time for everything outside `core/`, which is told the time and never asks for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What drivers read time from; tests and the twin put their own in its place."""

    def monotonic(self) -> float:
        """Seconds that never go back: deadlines, waits, durations."""

    def wall(self) -> float:
        """Seconds since the epoch: what people and certificates mean by time."""


class SystemClock:
    """The machine's clock."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only when told to; starts at the given seconds."""

    def __init__(self, monotonic_s: float = 0.0, wall_s: float = 1_700_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall(self) -> float:
        return self._wall_s

    def advance(self, seconds: float) -> None:
        """Moves both readings forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError(f"time cannot go back: {seconds}")
        self._monotonic_s += seconds
        self._wall_s += seconds
