"""Work of a lane on the event loop: never beside the same lane's thread, and nothing raises."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.kit.played_lanes import WAIT_S, played

from penstock.instance.engines.lane_threads import LaneThreads


async def outcome(begin: Any, work: Any) -> Any:
    got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    begin(0, work, got.set_result)
    assert not got.done(), "the caller hears of the end before it has gone on"
    return await asyncio.wait_for(got, WAIT_S)


def test_work_runs_on_the_loop_and_what_it_raises_is_its_outcome() -> None:
    async def play(threads: LaneThreads) -> None:
        assert await outcome(threads.run_here, threading.current_thread) is threading.main_thread()
        assert (
            await outcome(threads.submit, threading.current_thread) is not threading.main_thread()
        )
        assert isinstance(await outcome(threads.run_here, lambda: 1 / 0), ZeroDivisionError)
        assert await outcome(threads.run_here, lambda: "goes on") == "goes on"

    played(play)


def test_the_lanes_thread_does_it_while_it_is_busy() -> None:
    async def play(threads: LaneThreads) -> None:
        begun, may_end = threading.Event(), threading.Event()
        order: list[str] = []

        def long() -> None:
            begun.set()
            may_end.wait(WAIT_S)
            order.append("long")

        first = asyncio.create_task(outcome(threads.submit, long))
        await asyncio.to_thread(begun.wait, WAIT_S)
        second = asyncio.create_task(outcome(threads.run_here, lambda: order.append("here")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_end.set()  # the loop came by here: it did not wait for the lane
        await asyncio.gather(first, second)
        assert order == ["long", "here"]

    played(play)
