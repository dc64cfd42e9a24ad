"""Which batches lanes take next, with threads as they are."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Event

from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.transform.lane_pool import LanePool, Run


async def ran(pool: LanePool, threads: LaneThreads, add: list[tuple[int, list[str], bool]]) -> str:
    """Adds the batches of spans (number, names, first), while the lane is held; their order."""
    spans = [pool.begin(), pool.begin()]
    order: list[str] = []
    held, go, over = Event(), Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(lane: int) -> None:
        held.set()
        go.wait(10)

    def run(name: str, lane: int) -> None:
        order.append(name)
        if len(order) == sum(len(names) for _, names, _ in add):
            loop.call_soon_threadsafe(over.set)

    spans[1].add([hold])
    await asyncio.to_thread(held.wait, 10)
    for span, names, first in add:
        batches: list[Run] = [partial(run, name) for name in names]
        spans[span].add(batches, first=first)
    go.set()
    await asyncio.wait_for(over.wait(), 60)
    for span in spans:
        span.close()
    threads.close()
    return "".join(order)


def played(*add: tuple[int, list[str], bool]) -> str:
    async def play() -> str:
        threads = LaneThreads(1, "test", asyncio.get_running_loop())
        return await ran(LanePool(threads, 1), threads, list(add))

    return asyncio.run(play())


def test_the_span_that_began_first_goes_first_whoever_came_first() -> None:
    assert played((1, ["x", "y"], False), (0, ["a", "b"], False)) == "abxy"


def test_parts_of_a_batch_that_failed_go_before_what_waits_of_their_span() -> None:
    added = [(0, ["c", "d"], False), (0, ["a", "b"], True), (1, ["x"], True)]
    assert played(*added) == "abcdx"
