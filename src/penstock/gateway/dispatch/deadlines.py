"""When requests end at the latest, and who waits until they have.

All requests in flight share one timer, with two dictionary operations per request.

Requests without a deadline of their own all get the server's limit, so they expire in the order in
which they came. The oldest is the first entry of a dictionary that each leaves when it is over, and
only the oldest is checked. A heap of numbers holds callers' own deadlines and the longer ones of
streams. Nothing here keeps a finished request alive.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable

from penstock.clock import Clock
from penstock.core.routing import CopyState
from penstock.gateway.dispatch.invocation import ANSWERED, Invocation
from penstock.gateway.timers import TimerHandle, Timers

_SWEEP_MIN = 1024
_NEVER = float("inf")


class Deadlines:
    """Calls `expire` for each request that is not answered at its deadline.

    Attributes:
        live: number -> request, in the order of arrival. The owner of this object adds a request
            with its deadline set, calls `watch`, and removes it when it is over.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        expire: Callable[[Invocation], None],
        *,
        limit_s: float,
    ) -> None:
        """`limit_s`: every request but a stream expires at most this long after it was received."""
        self.live: dict[int, Invocation] = {}
        self._clock = clock
        self._timers = timers
        self._expire = expire
        self._limit_s = limit_s
        self._own: list[tuple[float, int]] = []  #: heap of (deadline, number)
        self._sweep_at = _SWEEP_MIN
        self._timer: TimerHandle | None = None
        self.timer_at = _NEVER  #: monotonic s when the timer fires; later deadlines need no `watch`

    def watch(self, deadline: float) -> None:
        """Makes sure that the timer fires at `deadline` at the latest."""
        if deadline < self.timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self.timer_at = deadline
            self._timer = self._timers.call_at(deadline, self._on_timer)

    def watch_own(self, invocation: Invocation, deadline: float) -> None:
        """As `watch`, for a deadline that is not the server's usual limit."""
        own = self._own
        if len(own) >= self._sweep_at:
            self._own = own = [item for item in own if item[1] in self.live]
            heapq.heapify(own)
            self._sweep_at = 2 * len(own) + _SWEEP_MIN
        heapq.heappush(own, (deadline, invocation.number))
        self.watch(deadline)

    def _on_timer(self) -> None:
        self._timer = None
        self.timer_at = _NEVER
        now = self._clock.monotonic()
        due = []
        own = self._own
        while own and (now >= own[0][0] or own[0][1] not in self.live):
            found = self.live.get(heapq.heappop(own)[1])
            if found is not None:
                due.append(found)
        oldest = _NEVER
        for invocation in self.live.values():
            if now < invocation.received + self._limit_s:
                oldest = invocation.received + self._limit_s
                break
            if invocation.deadline is not None and now >= invocation.deadline:
                due.append(invocation)
        for invocation in due:
            if invocation.state < ANSWERED:
                self._expire(invocation)
        self.watch(min(oldest, self._own[0][0] if self._own else _NEVER))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.timer_at = -_NEVER


class DrainWatch:
    """The copies that left the routes and drain, and the tasks that wait for them or for all
    requests.

    The dispatcher calls when a count reaches zero; nobody polls. It refuses new requests meanwhile,
    and `core/routing` picks no draining copy.

    Attributes:
        waits: whether any task waits; it saves the hot path a call.
    """

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        #: by themselves: one with the same number may be in a shadow's routes
        self._copies: set[CopyState] = set()
        self._watchers: list[Callable[[], None]] = []
        self.waits = False

    def add(self, states: Iterable[CopyState]) -> None:
        """Adds copies that just left the routes; forgets those that came back into them."""
        self._copies = {state for state in self._copies if state.draining}
        self._copies.update(state for state in states if state.outstanding or state.sequence_idle_s)

    def released(self, state: CopyState) -> None:
        """The last slot of a draining copy was freed. One with sequences waits for more than
        that."""
        if not state.sequence_idle_s:
            self.finished(state)

    def finished(self, state: CopyState) -> None:
        """Nothing will come to a draining copy any more."""
        self._copies.discard(state)
        self.look()

    def look(self) -> None:
        """Checks the conditions of all waiting tasks."""
        for watcher in list(self._watchers):
            watcher()

    async def copies_drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        watched = set(copies)

        def drained() -> bool:
            return watched.isdisjoint(state.copy for state in self._copies)

        return await self.wait(drained, timeout_s)

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
