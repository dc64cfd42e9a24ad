"""Deadlines of all requests in flight, with one timer and two dictionary operations per request.

Requests without a deadline of their own all get the server's limit, so they expire in the order in
which they came. The oldest is the first entry of a dictionary that each leaves when it is over, and
only the oldest is checked. A heap of numbers holds callers' own deadlines and the longer ones of
streams. Nothing here keeps a finished request alive.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from penstock.clock import Clock
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
