"""Timers of an event loop, for a clock that has an origin of its own."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.virtual_network import run_virtual

from penstock.clock import Clock
from penstock.gateway.timers import LoopTimers

pytestmark = pytest.mark.loop(by=run_virtual)


class OwnClock(Clock):
    """Runs with a loop, from another origin."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time() + 1_000.0

    def wall(self) -> float:
        return 0.0


async def test_a_timer_rings_at_its_moment_of_the_clock_and_never_at_once() -> None:
    """What is due, or nearly, waits a millisecond: the loop rounds, and would spin."""
    loop = asyncio.get_running_loop()
    clock = OwnClock(loop)
    timers = LoopTimers(loop, clock)
    began = clock.monotonic()
    rung: list[tuple[str, float]] = []

    def ring(name: str) -> None:
        rung.append((name, round(clock.monotonic() - began, 6)))

    timers.call_at(began + 2.0, lambda: ring("later"))
    timers.call_at(began - 5.0, lambda: ring("over"))
    timers.call_at(began + 0.0004, lambda: ring("nearly"))
    timers.call_at(began + 1.0, lambda: ring("cancelled")).cancel()
    timers.call_soon(lambda: ring("soon"))
    assert rung == []
    await asyncio.sleep(3.0)
    assert rung == [("soon", 0.0), ("over", 0.001), ("nearly", 0.001), ("later", 2.0)]
