"""How far a span is, and whether it is to go on: shared by the threads that work on it."""

from __future__ import annotations

import asyncio
import threading

from penstock.errors import NotNowError, PenstockError


class SpanProgress:
    """Made on the event loop, which reads it; written by the span's own threads."""

    def __init__(self) -> None:
        #: answered or refused; within a window by the share of its batches that have run, as a slow
        #: model takes hours for one
        self.records = 0
        self.refused = 0
        self.run_s = 0.0  #: that lanes were busy
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._wakes = asyncio.Event()  #: the same for coroutines
        self._error: PenstockError | None = None

    def end(self, error: PenstockError) -> None:
        """The span is not to go on. The first reason counts."""
        if self._error is None:
            self._error = error
        self._ended.set()
        self._loop.call_soon_threadsafe(self._wakes.set)

    async def wait(self) -> None:
        """Returns once it is not to go on; on the event loop."""
        await self._wakes.wait()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def check(self) -> None:
        """Raises why the span is not to go on."""
        if self._error is not None:
            raise self._error


def stopped(job: str) -> NotNowError:
    return NotNowError("transform-stopped", f"the job {job} was stopped")
