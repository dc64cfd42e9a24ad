"""A process that serves and is started again when it dies, by the rule of `core.blame.crash_loop`.

Classes with such a process inherit `Supervised` and define how it is started. It knows neither what
the process is nor who waits for its answers; its listener gets the events that it was lost, is
back, or was given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, Self, TypeVar

from penstock.cleanup import shielded
from penstock.clock import Clock, SystemClock
from penstock.core.blame.death_limits import LOOP_WINDOW_S, CrashLoop
from penstock.errors import PenstockError
from penstock.runtimes.base import LaneListener, LoadContext


class _Process(Protocol):
    @property
    def pid(self) -> int | None: ...
    def kill(self) -> None:
        """Kills it at once, with all that it started."""

    async def close(self) -> None:
        """Asks it to end, and makes sure that it does. Idempotent."""


Process = TypeVar("Process", bound=_Process)


class Supervised(Generic[Process]):
    """`serves`: the lanes that the listener associates with this process."""

    def __init__(
        self,
        context: LoadContext,
        listener: LaneListener,
        *,
        serves: Sequence[int] = (0,),
        clock: Clock | None = None,
    ) -> None:
        self.process: Process | None = None  #: the process that serves; None while there is none
        self.closed = False
        self._context = context
        self._listener = listener
        self._serves = serves
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._crash_loop = CrashLoop(window_s=LOOP_WINDOW_S)
        self._restart: asyncio.Task[None] | None = None

    async def spawn(self) -> Process:
        """Starts a process, and returns it once it is ready; it calls `gone` if it ends. Raises
        PenstockError."""
        raise NotImplementedError

    async def begin(self) -> Self:
        """Starts the first process. Raises what `spawn` raises: there is no second try."""
        try:
            self.process = await self.spawn()
        except BaseException:
            await shielded(self.close())
            raise
        return self

    @property
    def pids(self) -> list[int]:
        return [self.process.pid] if self.process and self.process.pid else []

    def served(self) -> None:
        """Call this when the process has answered: earlier deaths no longer count."""
        self._crash_loop.served()

    def gone(self, error: PenstockError) -> None:
        """Call this when the process has ended. Subclasses also answer running calls."""
        self.process = None
        if not self.closed:
            self.lost(error)
            self._died(error)

    def lost(self, error: PenstockError) -> None:
        for lane in self._serves:
            self._listener.lane_lost(lane, error)

    def ready(self) -> None:
        for lane in self._serves:
            self._listener.lane_ready(lane)

    def _died(self, error: PenstockError) -> None:
        """Schedules the next start, or gives up."""
        wait_s = self._crash_loop.died(now=self._clock.monotonic())
        if wait_s is not None:
            self._restart = self._loop.create_task(self._again(wait_s))
            return
        for lane in self._serves:
            self._listener.lane_failed(lane, error)

    async def _again(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            process = await self.spawn()
        except PenstockError as error:
            self._context.log(f"not started again: {error.message}")
            self._died(error)
            return
        if self.closed:
            await process.close()
            return
        self.process = process
        self.ready()

    async def close(self) -> None:
        """Ends the process; a scheduled or running start is cancelled."""
        self.closed = True
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.gather(self._restart, return_exceptions=True)
        if self.process is not None:
            await self.process.close()
            self.process = None

    def kill(self) -> None:
        """Kills it without waiting: the instance itself is ending."""
        self.closed = True
        if self.process is not None:
            self.process.kill()
