"""Writes that share transactions: what comes while one is being committed goes with the next.

A commit waits for the disk, so one for each request would be the queue's speed limit; nobody is
told that something is written before it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from penstock.errors import NotNowError

T = TypeVar("T")
R = TypeVar("R")

#: One transaction must not keep the database from others for long.
TOGETHER_MAX: Final = 256


class Commits(Generic[T, R]):
    """Writes of one kind. `write` gets some of them, in order, and gives a result for each."""

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._write = write
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, item: T) -> R:
        """Returns once it is written; raises what writing raised. A caller that no longer waits
        changes nothing."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="asynchronous-commits")
        return await future

    async def close(self) -> None:
        """Waits for what is being written. Idempotent."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            await self._commit(some)
        self._task = None

    async def _commit(self, some: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._write([item for item, _ in some])
        except Exception as error:  # it is each one's to handle
            if len(some) > 1 and not isinstance(error, NotNowError):
                for one in some:  # one of them can't be written: it is to fail alone
                    await self._commit([one])
                return
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(some, results, strict=True):
            if not future.done():
                future.set_result(result)
