"""Clean-up that a cancel can't skip.

A cancelled task cleans up and then ends. It may be cancelled once more while it does so: by a
second time limit, a server that stops, a caller that leaves. An `await` in a `finally` or
an `except` is where that second cancel arrives, and the code after it does not run: nobody waits
for a child process, memory stays reserved, a `stop()` waits for ever.

So the clean-up is one coroutine that runs in a task of its own, and its caller waits until it is
over. `tests/architecture/test_cleanup.py` checks every such `await` in the source.
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

    `work` must therefore bound its own time: a process that is killed, a reply with a time
    limit.

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
    """A stack whose callbacks are clean-up, too: all of them have run once it is left or closed."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await shielded(super().__aexit__(kind, error, trace))
