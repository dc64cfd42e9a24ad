"""A loop in the background: turns with pauses between them, for as long as a server runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from penstock.errors import PenstockError

_log = logging.getLogger(__name__)


class DriverLoop:
    """`start` it, then `close`. `wake` ends the pause, or has another turn follow at once.

    A turn that fails is logged and ends no loop: what failed may succeed in a later one.
    """

    def __init__(
        self, name: str, turn: Callable[[], Awaitable[float]], *, fault: str, retry_s: float
    ) -> None:
        """
        Args:
            turn: returns how long to pause after it, in s.
            fault: what a turn that fails means, for the log.
            retry_s: pause after such a turn.
        """
        self._name = name
        self._turn = turn
        self._fault = fault
        self._retry_s = retry_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)

    def wake(self) -> None:
        self._wake.set()

    async def close(self) -> None:
        """Cancels a turn that is under way. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause_s = self._retry_s
            try:
                pause_s = await self._turn()
            except PenstockError as error:  # the disk may be full, or the database away
                _log.warning("%s: %s: %s %s", self._fault, error.code, error.message, error.hint)
            except Exception:
                _log.exception("%s", self._fault)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
