"""Cancels a task again and again, so that a cancel meets every `await` of its clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

#: A clean-up ends a process at most; these are seconds of a busy machine.
_DEADLINE_S: Final = 60.0


async def cancelled_on_and_on(task: asyncio.Future[Any]) -> None:
    """Returns once it has ended: by the cancel, or as it would have without one."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _DEADLINE_S
    while not task.done():
        assert loop.time() < until, "a task that is cancelled does not end"
        task.cancel()
        await asyncio.sleep(0)
    if not task.cancelled():
        task.exception()


async def cancelled_after(turns: int, work: Coroutine[Any, Any, Any]) -> bool:
    """Cancels `work` on and on after so many turns of the loop; False: it had ended by then."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            task.exception()
            return False
    await cancelled_on_and_on(task)
    return True
