"""Waits until something is over: copies that left the routes, or everything in flight.

The dispatcher calls when a count reaches zero; nobody polls. The dispatcher refuses new requests
meanwhile, and `core/routing` picks no draining copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from penstock.clock import Clock
from penstock.core.routing import CopyState
from penstock.gateway.timers import Timers


class DrainWatch:
    """The copies that drain, and the tasks that wait for them.

    Attributes:
        waits: whether any task waits; it saves the hot path a call.
    """

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._copies: dict[int, CopyState] = {}
        self._watchers: list[Callable[[], None]] = []
        self.waits = False

    def add(self, states: Iterable[CopyState]) -> None:
        """Adds copies that just left the routes; forgets those that came back into them."""
        self._copies = {copy: state for copy, state in self._copies.items() if state.draining}
        self._copies.update((state.copy, state) for state in states if state.outstanding)

    def released(self, state: CopyState) -> None:
        """The last slot of a draining copy was freed."""
        self._copies.pop(state.copy, None)
        self.look()

    def look(self) -> None:
        """Checks the conditions of all waiting tasks."""
        for watcher in list(self._watchers):
            watcher()

    async def copies_drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        watched = set(copies)
        return await self.wait(lambda: watched.isdisjoint(self._copies), timeout_s)

    async def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """True once `condition` holds at a `look`; False after `timeout_s`."""
        if condition():
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if condition() and not future.done():
                future.set_result(True)

        def give_up() -> None:
            if not future.done():
                future.set_result(False)

        timer = self._timers.call_at(self._clock.monotonic() + timeout_s, give_up)
        self._watchers.append(look)
        self.waits = True
        try:
            return await future
        finally:
            timer.cancel()
            self._watchers.remove(look)
            self.waits = bool(self._watchers)
