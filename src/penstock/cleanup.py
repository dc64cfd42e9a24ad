"""Clean-up that a cancel can't skip.

A task that is cancelled cleans up and then ends. It may be cancelled once more while it does: a
time limit beside another, a server that stops, a caller that leaves. An `await` in a `finally` or
an `except` is where that second cancel arrives, and what came after it is not done: a child that is
never waited for, memory that stays reserved, a `stop()` that waits for ever.

So the clean-up is one coroutine and runs in a task of its own, and whoever waits for it waits until
it is over. `tests/architecture/test_cleanup.py` holds every such `await` of the source to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

_T = TypeVar("_T")


async def shielded(work: Awaitable[_T]) -> _T:
    """Waits for `work` until it is over, however often the caller is cancelled meanwhile.

    What `work` can take is therefore to be bounded by itself: a process that is killed, a reply
    with a time limit.

    Raises:
        asyncio.CancelledError: the caller was cancelled meanwhile. `work` is over.
        BaseException: whatever `work` raised.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            cancelled.__cause__ = task.exception()
        raise cancelled
    return task.result()


class ShieldedExitStack(contextlib.AsyncExitStack):
    """Its callbacks are clean-up, too: all of them are over once it is left or closed."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await shielded(super().__aexit__(kind, error, trace))
