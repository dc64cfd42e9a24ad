"""A lane's threads on a loop of their own, for as long as a play takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.instance.engines.lane_threads import LaneThreads

WAIT_S = 10.0


def played(play: Callable[[LaneThreads], Awaitable[None]]) -> None:
    async def inside() -> None:
        threads = LaneThreads(1, "lane", asyncio.get_running_loop())
        try:
            await asyncio.wait_for(play(threads), 3 * WAIT_S)
        finally:
            threads.close()

    asyncio.run(inside())
