"""Waiting for copies to drain, and for everything in flight: who is told, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.kit.gateway import run
from tests.kit.timers import ManualTimers

from penstock.clock import ManualClock
from penstock.core.routing import CopyState
from penstock.gateway.dispatch.deadlines import DrainWatch


class Waiters:
    """A watch of copies and what its waiters were told."""

    def __init__(self) -> None:
        clock = ManualClock(monotonic_s=100.0)
        self.timers = ManualTimers(clock)
        self.watch = DrainWatch(clock, self.timers)
        self.told: dict[str, bool] = {}

    async def wait(self, name: str, waiting: Awaitable[bool]) -> None:
        """Begins to wait; what comes of it is under `name`."""

        async def note() -> None:
            self.told[name] = await waiting

        self._task = asyncio.ensure_future(note())
        await asyncio.sleep(0)

    async def settle(self) -> dict[str, bool]:
        for _ in range(3):
            await asyncio.sleep(0)
        return self.told


def copy(number: int, *, outstanding: int = 1, draining: bool = True) -> CopyState:
    state = CopyState(number, f"i{number}", "v", 4)
    state.outstanding, state.draining = outstanding, draining
    return state


def checked(main: Callable[[Waiters], Awaitable[None]]) -> None:
    async def body() -> None:
        await main(Waiters())

    run(body)


def test_copies_are_waited_for_until_each_has_freed_its_last_slot() -> None:
    async def main(waiters: Waiters) -> None:
        watch = waiters.watch
        one, two, three = copy(1), copy(2), copy(3)
        watch.add([one, two])
        watch.add([three])
        await waiters.wait("both", watch.copies_drained([1, 2], 5.0))
        await waiters.wait("third", watch.copies_drained([3], 5.0))
        assert watch.waits
        watch.released(one)
        assert await waiters.settle() == {}
        watch.released(two)
        assert await waiters.settle() == {"both": True}
        assert watch.waits
        watch.released(three)
        assert await waiters.settle() == {"both": True, "third": True}
        assert not watch.waits
        assert waiters.timers.set == []

    checked(main)


def test_who_waits_too_long_is_told_so_and_once() -> None:
    async def main(waiters: Waiters) -> None:
        one = copy(1)
        waiters.watch.add([one])
        await waiters.wait("short", waiters.watch.copies_drained([1], 2.0))
        await waiters.wait("long", waiters.watch.copies_drained([1], 3.0))
        waiters.timers.advance(1.9)
        assert await waiters.settle() == {}
        waiters.timers.advance(0.1)
        waiters.watch.released(one)
        assert await waiters.settle() == {"short": False, "long": True}

    checked(main)


def test_what_is_over_at_the_same_moment_in_both_ways_is_told_once() -> None:
    async def main(waiters: Waiters) -> None:
        one = copy(1)
        waiters.watch.add([one])
        await waiters.wait("one", waiters.watch.copies_drained([1], 2.0))
        waiters.watch.released(one)
        waiters.watch.look()
        waiters.timers.advance(2.0)
        assert await waiters.settle() == {"one": True}

    checked(main)


def test_nothing_to_wait_for_is_no_wait() -> None:
    async def main(waiters: Waiters) -> None:
        waiters.watch.add([copy(1, outstanding=0), copy(2)])
        assert await waiters.watch.copies_drained([1, 7], 5.0)
        assert await waiters.watch.copies_drained([], 5.0)
        assert (waiters.watch.waits, waiters.timers.set) == (False, [])

    checked(main)


def test_a_copy_that_came_back_into_the_routes_is_waited_for_no_more() -> None:
    async def main(waiters: Waiters) -> None:
        back = copy(1)
        waiters.watch.add([back])
        back.draining = False
        waiters.watch.add([copy(2)])
        assert await waiters.watch.copies_drained([1], 5.0)

    checked(main)


def test_a_condition_is_asked_for_when_something_may_be_over() -> None:
    async def main(waiters: Waiters) -> None:
        left = [1]
        await waiters.wait("empty", waiters.watch.wait(lambda: not left, 5.0))
        waiters.watch.look()
        assert await waiters.settle() == {}
        left.clear()
        assert await waiters.settle() == {}
        waiters.watch.look()
        assert await waiters.settle() == {"empty": True}

    checked(main)
