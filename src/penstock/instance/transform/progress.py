"""A span's progress, and whether it should go on: shared by the threads that work on it."""

from __future__ import annotations

import asyncio
import threading

from penstock.errors import NotNowError, PenstockError


class SpanProgress:
    """Create it on the event loop, which reads it; the span's own threads write it."""

    def __init__(self) -> None:
        #: Records that are answered or refused. Within a window it is estimated from the share of
        #: batches that have run, because a slow model takes hours for one window.
        self.records = 0
        self.refused = 0
        self.run_s = 0.0  #: time that lanes were busy
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._wakes = asyncio.Event()  #: wakes waiting coroutines
        self._error: PenstockError | None = None

    def end(self, error: PenstockError) -> None:
        """The span must not go on. The first reason counts."""
        if self._error is None:
            self._error = error
        self._ended.set()
        self._loop.call_soon_threadsafe(self._wakes.set)

    async def wait(self) -> None:
        """Returns once the span must not go on; on the event loop."""
        await self._wakes.wait()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def check(self) -> None:
        """Raises the reason if the span must not go on."""
        if self._error is not None:
            raise self._error


def stopped(job: str) -> NotNowError:
    return NotNowError("transform-stopped", f"the job {job} was stopped")
