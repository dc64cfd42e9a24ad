"""Waits of a fraction of a millisecond are set on the kernel's timer, to the nanosecond."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from tests.kit.polling import until

from penstock.clock import ManualClock, SystemClock
from penstock.instance.short_timers import SHORT_S, ShortTimers, TimerAlarm

pytestmark = pytest.mark.loop(by=lambda test: uvloop.run(test()))


class WrittenAlarm:
    """Keeps the times that it was set to, and rings when the test says so."""

    def __init__(self) -> None:
        self._theirs, ours = socket.socketpair()
        ours.setblocking(False)
        self.fd = ours.detach()
        self.times: list[float] = []

    def set(self, at: float) -> None:
        self.times.append(at)

    def ring(self) -> None:
        self._theirs.send(b"12345678")


class TimersRig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarm = WrittenAlarm()
        self.opened = 0
        self.timers = ShortTimers(asyncio.get_running_loop(), self.clock, self._open)
        self.rang: list[str] = []

    def _open(self) -> WrittenAlarm:
        self.opened += 1
        return self.alarm

    def set(self, at: float, name: str) -> Any:
        return self.timers.call_at(at, lambda: self.rang.append(name))

    async def rings(self, at: float, names: list[str]) -> None:
        self.clock.advance(at - self.clock.monotonic())
        self.alarm.ring()
        await until(lambda: self.rang == names)


async def test_a_wait_below_a_millisecond_is_set_to_its_very_moment() -> None:
    rig = TimersRig()
    start = rig.clock.monotonic()
    rig.set(start + 0.0006, "a")
    assert rig.alarm.times == [start + 0.0006]
    await rig.rings(start + 0.0006, ["a"])
    assert rig.alarm.times == [start + 0.0006]  # nothing waits: it is not set again
    rig.timers.close()


async def test_the_alarm_is_set_to_the_earliest_wait_and_then_to_the_next() -> None:
    rig = TimersRig()
    start = rig.clock.monotonic()
    for wait_s, name in ((0.003, "c"), (0.001, "a"), (0.002, "b"), (0.001, "a too")):
        rig.set(start + wait_s, name)
    assert rig.alarm.times == [start + 0.003, start + 0.001]
    await rig.rings(start + 0.001, ["a", "a too"])
    assert rig.alarm.times[2:] == [start + 0.002]
    await rig.rings(start + 0.003, ["a", "a too", "b", "c"])
    assert (rig.alarm.times[3:], rig.opened) == ([], 1)
    rig.timers.close()


async def test_a_wait_that_was_cancelled_calls_nobody() -> None:
    rig = TimersRig()
    start = rig.clock.monotonic()
    first, _ = rig.set(start + 0.001, "a"), rig.set(start + 0.002, "b")
    first.cancel()
    await rig.rings(start + 0.002, ["b"])
    rig.timers.close()


async def test_a_callback_that_fails_stops_no_other() -> None:
    rig = TimersRig()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    start = rig.clock.monotonic()

    def fail() -> None:
        raise ValueError("on purpose")

    rig.timers.call_at(start + 0.001, fail)
    rig.set(start + 0.001, "b")
    await rig.rings(start + 0.001, ["b"])
    assert [str(context["exception"]) for context in told] == ["on purpose"]
    rig.timers.close()


@pytest.mark.parametrize("wait_s", [-1.0, 0.0, SHORT_S])
async def test_what_is_due_and_what_is_long_is_left_to_the_loop(wait_s: float) -> None:
    rig = TimersRig()
    timer = rig.set(rig.clock.monotonic() + wait_s, "a")
    assert (rig.opened, rig.alarm.times) == (0, [])
    if wait_s <= 0:
        await until(lambda: rig.rang == ["a"])
    timer.cancel()


async def test_where_there_is_no_such_descriptor_the_loop_waits() -> None:
    asked: list[str] = []

    def none() -> Any:
        asked.append("timerfd")
        raise OSError("none is left")

    clock = SystemClock()
    timers = ShortTimers(asyncio.get_running_loop(), clock, none)
    rang: list[float] = []
    for _ in range(2):
        timers.call_at(clock.monotonic() + 0.001, lambda: rang.append(clock.monotonic()))
    await until(lambda: len(rang) == 2)
    assert asked == ["timerfd"]
    timers.close()


async def test_after_its_end_the_loop_waits() -> None:
    rig = TimersRig()
    start = rig.clock.monotonic()
    rig.set(start + 0.001, "forgotten")
    rig.timers.close()
    rig.timers.close()
    rig.set(start + 0.001, "b")
    await until(lambda: rig.rang == ["b"])
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(rig.alarm.fd)


@pytest.mark.skipif(sys.platform != "linux", reason="timerfd is of Linux")
async def test_the_kernel_rings_at_that_time_and_not_before() -> None:
    clock = SystemClock()
    timers = ShortTimers(asyncio.get_running_loop(), clock)
    rang: list[tuple[float, float]] = []

    def note(at: float) -> Callable[[], None]:
        return lambda: rang.append((at, clock.monotonic()))

    for number in range(50):
        at = clock.monotonic() + 0.0004
        timers.call_at(at, note(at))
        await until(lambda wanted=number + 1: len(rang) == wanted)
    assert [pair for pair in rang if pair[1] < pair[0]] == []
    timers.close()


@pytest.mark.skipif(sys.platform != "linux", reason="timerfd is of Linux")
async def test_a_moment_that_has_passed_rings_at_once() -> None:
    """A time of 0 would switch the kernel's timer off."""
    alarm = TimerAlarm()
    rang = asyncio.Event()
    loop = asyncio.get_running_loop()
    for at in (0.0, -5.0, time.monotonic() - 1):
        rang.clear()
        loop.add_reader(alarm.fd, lambda: (os.read(alarm.fd, 8), rang.set()))
        alarm.set(at)
        await asyncio.wait_for(rang.wait(), 30)
    loop.remove_reader(alarm.fd)
    os.close(alarm.fd)
