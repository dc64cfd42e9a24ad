"""Timers of the event loop that wait a fraction of a millisecond truly.

uvloop counts in whole milliseconds: a wait of 0.6 ms lasts 1.1, and a batch that saves less than
that by waiting has lost by it. So short waits are set on a file descriptor of the kernel
(`timerfd_create(2)`), which the loop watches like a socket. It takes absolute times of the very
clock that `time.monotonic` reads. Longer waits, and all where there is no such descriptor (not
Linux, or none is left), are the loop's own.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

from penstock.clock import Clock

#: s; a millisecond of rounding is less than a tenth of longer waits
SHORT_S = 0.01
_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_NS = 1_000_000_000


class Alarm(Protocol):
    """A file descriptor that becomes readable at one moment."""

    fd: int

    def set(self, at: float) -> None:
        """`at`: s of the monotonic clock."""


class TimerAlarm:
    """`timerfd_create(2)`. Raises OSError where there is none."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        create = getattr(libc, "timerfd_create", None)
        if create is None:
            raise OSError("this system has no timerfd")
        self.fd: int = create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._settime = libc.timerfd_settime
        #: struct itimerspec: interval (s, ns), then the time itself (s, ns)
        self._value = (ctypes.c_long * 4)()
        self._at = ctypes.byref(self._value)

    def set(self, at: float) -> None:
        # A nanosecond more than nothing: 0 would switch it off.
        self._value[2], self._value[3] = divmod(max(1, -int(-at * _NS // 1)), _NS)
        self._settime(self.fd, _TFD_TIMER_ABSTIME, self._at, None)


class ShortTimer:
    """A wait that can be cancelled. Its entry stays until the time has come."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ShortTimers:
    """`call_at` of one event loop, for all its copies."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        alarm: Callable[[], Alarm] = TimerAlarm,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._new_alarm: Callable[[], Alarm] | None = alarm  #: None: there is none to be had
        self._alarm: Alarm | None = None
        self._numbers = count()
        self._heap: list[tuple[float, int, ShortTimer]] = []

    def call_at(self, at: float, callback: Callable[[], None]) -> Any:
        """Calls back at `at`, monotonic s; what it returns has `cancel`."""
        wait_s = at - self._clock.monotonic()
        if not 0.0 < wait_s < SHORT_S or not self._ready():
            return self._loop.call_later(max(0.0, wait_s), callback)
        timer = ShortTimer(callback)
        heappush(self._heap, (at, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self._set()
        return timer

    def close(self) -> None:
        """Waits that are not over are forgotten. Idempotent."""
        self._new_alarm = None
        self._heap.clear()
        if self._alarm is not None:
            self._loop.remove_reader(self._alarm.fd)
            os.close(self._alarm.fd)
            self._alarm = None

    def _ready(self) -> bool:
        """Opens the descriptor with the first wait that needs it."""
        if self._alarm is None and self._new_alarm is not None:
            try:
                self._alarm = self._new_alarm()
            except OSError:
                self._new_alarm = None
            else:
                self._loop.add_reader(self._alarm.fd, self._rings)
        return self._alarm is not None

    def _set(self) -> None:
        assert self._alarm is not None
        self._alarm.set(self._heap[0][0])

    def _rings(self) -> None:
        assert self._alarm is not None
        with suppress(BlockingIOError):  # it was set to a later time meanwhile
            os.read(self._alarm.fd, 8)
        heap, now = self._heap, self._clock.monotonic()
        while heap and (heap[0][2].callback is None or now >= heap[0][0]):
            callback = heappop(heap)[2].callback
            if callback is not None:
                try:
                    callback()
                except Exception as error:  # as in a timer of the loop: the others go on
                    self._loop.call_exception_handler(
                        {"message": "a timer's callback failed", "exception": error}
                    )
        if heap and self._alarm is not None:
            self._set()
