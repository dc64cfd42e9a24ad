"""Timers of the gateway's drivers: a call at a moment of their own clock.

The event loop's time and the clock of `clock.py` may have different origins, and a test sets both
by hand. So drivers use this small interface and never ask a loop for the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.clock import Clock

#: uvloop rounds delays to whole milliseconds. Without a minimum, a timer that is early by less than
#: half of one would be set again with delay zero, again and again.
DELAY_S_MIN = 0.001


class TimerHandle(Protocol):
    def cancel(self) -> None:
        """The callback will not be called. Idempotent."""


class Timers(Protocol):
    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls back at or shortly after `when` (monotonic s); compare with the clock then."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Calls back once the current callback has returned."""


class LoopTimers:
    """Timers on an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        delay_s = max(DELAY_S_MIN, when - self._clock.monotonic())
        return self._loop.call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self._loop.call_soon(callback)
