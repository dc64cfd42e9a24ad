"""Timers under a manual clock: nothing happens until the test moves the time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import ManualClock


class ManualTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """`call_at` for drivers. While the time is moved, what is due is called in order, each at its
    own moment."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._set: list[ManualTimer] = []

    @property
    def set(self) -> list[ManualTimer]:
        """Those that wait, in the order in which they were set."""
        return [timer for timer in self._set if not timer.cancelled]

    def call_at(self, at: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(at, callback)
        self._set.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> ManualTimer:
        return self.call_at(self._clock.monotonic(), callback)

    def advance(self, seconds: float) -> None:
        self.move_to(self._clock.monotonic() + seconds)

    def move_to(self, at: float) -> None:
        while due := [timer for timer in self.set if timer.at <= at]:
            first = min(due, key=lambda timer: timer.at)
            self._set = [timer for timer in self.set if timer is not first]
            self._clock.advance(max(0.0, first.at - self._clock.monotonic()))
            first.callback()
        self._clock.advance(max(0.0, at - self._clock.monotonic()))
