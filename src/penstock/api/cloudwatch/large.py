"""Large requests for metrics take turns, so that small ones never wait for them.

A request is large by what it would read and compute, which is known before it begins. One large
request of a server is carried out at a time, its arithmetic on a thread of its own: the threads
that everybody shares stay free, and what large requests hold in memory is held once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

#: Datapoints, each counted for every formula; some ten milliseconds.
SMALL_MAX: Final = 50_000
#: Of all expressions of a request together; reading them takes some ten milliseconds.
SMALL_CHARS_MAX: Final = 20_000

_thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-metrics")
_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


@asynccontextmanager
async def turn(*, large: bool) -> AsyncIterator[None]:
    """A large request's turn; a small one needs none."""
    if not large:
        yield
        return
    lock = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        yield


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Does `work` on a thread: a large request's on the one that these share."""
    if not large:
        return await asyncio.to_thread(work)
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
