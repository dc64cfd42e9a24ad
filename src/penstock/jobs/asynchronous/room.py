"""Bounds how many bytes of bodies are in memory at once, however many requests wait."""

from __future__ import annotations

import asyncio
from collections import deque


class BytesRoom:
    """A counter of bytes; first come, first served. A size above the total never fits. For one
    event loop."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.bytes_peak = 0  #: the highest use so far
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Returns once there is room for `size` bytes, which is at most `bytes_max`."""
        assert size <= self.bytes_max
        if self._waiting or self.bytes_used + size > self.bytes_max:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, future))
            try:
                await future
            except asyncio.CancelledError:
                # It got its room while it was being cancelled: give it back
                if future.done() and not future.cancelled():
                    self.give(size)
                raise
        else:
            self._add(size)

    def add(self, size: int) -> None:
        """Counts bytes that are in memory already, even where there is no room for them."""
        self._add(size)

    def give(self, size: int) -> None:
        """Releases bytes that were taken or added."""
        self.bytes_used -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
            elif self.bytes_used + wanted <= self.bytes_max:
                self._waiting.popleft()
                self._add(wanted)
                future.set_result(None)
            else:
                break

    def _add(self, size: int) -> None:
        self.bytes_used += size
        self.bytes_peak = max(self.bytes_peak, self.bytes_used)
