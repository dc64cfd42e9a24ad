"""Spare instance processes: started, with their modules imported, and not in use yet.

`core/machine/warm_pool.py` says how many to start. This class starts them through its fleet, gives
each to one instance at most, and replaces those that were taken or died. A spare has no name, no
socket and no model; the settings that it gets make it an instance like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from penstock.cleanup import shielded
from penstock.core.machine.warm_pool import SparesObserved, decide
from penstock.errors import PenstockError
from penstock.fleet.base import SpareObserved
from penstock.fleet.child import Child
from penstock.fleet.machine import resident_bytes

_log = logging.getLogger(__name__)

#: Importing takes a second or two; a busy laptop gets a minute.
WARM_S_MAX: Final = 60.0


class Spares:
    """The spares of one fleet. `keep` says how many; `close` ends those that were not taken."""

    def __init__(self, spawn: Callable[[], Child]) -> None:
        """`spawn` starts a process that waits for its settings."""
        self._spawn = spawn
        self._wished = 0
        self._modules: frozenset[str] = frozenset()
        self._ready: list[Child] = []  #: oldest first
        self._warming: Child | None = None
        self._failures = 0
        self._failed_at = 0.0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()

    def keep(self, count: int, modules: Collection[str]) -> None:
        """Sets how many spares to keep from now on, each with these modules imported."""
        fresh = frozenset(modules) - self._modules
        self._modules |= fresh
        self._wished = count
        if fresh:
            # A spare that is taken meanwhile imports them first; it needs them anyway.
            for child in self._ready:
                child.write({"warm": sorted(fresh)})
        if count and self._task is None:
            self._task = asyncio.create_task(self._run(), name="spares")
        self._changed.set()

    def take(self) -> Child | None:
        """Takes a spare, for this caller alone; None where none is ready."""
        while self._ready:
            child = self._ready.pop(0)
            self._changed.set()
            if not child.ended.done():
                self._failures = 0
                return child
        return None

    def seen(self) -> list[SpareObserved]:
        """All spares, in whatever state, with their memory now."""
        there = [(one, True) for one in self._ready]
        if self._warming is not None:
            there.append((self._warming, False))
        return [
            SpareObserved(one.process.pid, resident_bytes(one.process.pid), ready)
            for one, ready in there
            if not one.ended.done()
        ]

    async def close(self) -> None:
        self._wished = 0
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        left, self._ready = self._ready, []
        await asyncio.gather(*(_end(child) for child in left))
        if self._ends:
            await asyncio.wait(self._ends)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            self._drop_dead(loop.time())
            observed = SparesObserved(
                ready=len(self._ready),
                starting=0,
                failures=self._failures,
                failed_at=self._failed_at,
            )
            decision = decide(self._wished, observed, now=loop.time())
            for _ in range(decision.stop):
                self._end_later(self._ready.pop())
            if decision.start:
                await self._start()
                continue
            due = decision.next_deadline
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _drop_dead(self, now: float) -> None:
        for child in [one for one in self._ready if one.ended.done()]:
            self._ready.remove(child)
            self._end_later(child)
            self._failed(now, "a spare instance ended")

    def _failed(self, now: float, what: str) -> None:
        self._failures += 1
        self._failed_at = now
        _log.warning("%s; another is started", what)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        child = None
        try:
            child = self._warming = self._spawn()
            child.write({"warm": sorted(self._modules)})
            async with asyncio.timeout(WARM_S_MAX):
                warm = await child.output.readline() == b"warm\n"
        except (PenstockError, OSError, TimeoutError) as error:
            _log.debug("a spare instance could not be started: %s", error)
            warm = False
        except BaseException:
            if child is not None:
                self._end_later(child)
            raise
        finally:
            self._warming = None
        if child is not None and warm and not child.ended.done():
            child.ended.add_done_callback(lambda _: self._changed.set())
            self._ready.append(child)
            return
        if child is not None:
            await shielded(_end(child))
        self._failed(loop.time(), "a spare instance could not be started")

    def _end_later(self, child: Child) -> None:
        task = asyncio.create_task(_end(child))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


async def _end(child: Child) -> None:
    """Kills it: a spare holds nothing that has to be saved."""
    child.kill_group()
    await child.wait_ended()
    child.discard()
