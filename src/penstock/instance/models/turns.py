"""Who may load, end or warm up models at this moment: several beside one another, or one alone.

First come, first served: who waits to be alone is passed by nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    def __init__(self) -> None:
        self._beside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()  #: (told, to be alone)

    @property
    def are_taken(self) -> bool:
        return self._alone or self._beside > 0

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """With others."""
        await self._admitted(alone=False)
        try:
            yield
        finally:
            self._beside -= 1
            self._admit()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        await self._admitted(alone=True)
        try:
            yield
        finally:
            self._alone = False
            self._admit()

    async def _admitted(self, *, alone: bool) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((told, alone))
        self._admit()
        try:
            await told
        except asyncio.CancelledError:
            if told.done() and not told.cancelled():  # admitted at this very moment
                self._alone, self._beside = False, self._beside - (not alone)
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting:
            told, alone = self._waiting[0]
            if not told.done():
                if self._alone or (alone and self._beside):
                    return
                self._alone, self._beside = alone, self._beside + (not alone)
                told.set_result(None)
            self._waiting.popleft()
