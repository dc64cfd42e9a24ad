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
    """`call_at` for drivers. `move_to` fires what is due, in order, each at its own moment."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.set: list[ManualTimer] = []

    def call_at(self, at: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(at, callback)
        self.set.append(timer)
        return timer

    def move_to(self, at: float) -> None:
        while True:
            self.set = [timer for timer in self.set if not timer.cancelled]
            due = [timer for timer in self.set if timer.at <= at]
            if not due:
                break
            first = min(due, key=lambda timer: timer.at)
            self.set.remove(first)
            self._clock.advance(max(0.0, first.at - self._clock.monotonic()))
            first.callback()
        self._clock.advance(at - self._clock.monotonic())
