"""Accepted requests that came back unanswered: routed again, held for a copy, or given up.

`core.retry` decides; this class asks it, waits and carries out. Held requests are in the order in
which they came and are looked at whenever something changed for the better, and at the latest when
the timer rings. What it means to send, to fail and to give a slot back is the dispatcher's.
Nothing here is touched by a request that is answered at its first copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.clock import Clock
from penstock.core import retry
from penstock.core.routing import NoRoute, Routed
from penstock.errors import PenstockError
from penstock.gateway import refusals
from penstock.gateway.endpoint_table import Endpoint, pick
from penstock.gateway.invocation import SENT, STREAMING, WAITING, Invocation
from penstock.gateway.timers import TimerHandle, Timers


class Sender(Protocol):
    """What the dispatcher does with a request that is routed again."""

    def __call__(
        self, invocation: Invocation, route: Routed, deadline: float, now: float
    ) -> None: ...


class Retries:
    """All requests of one dispatcher that are without a copy."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        endpoints: Mapping[str, Endpoint],
        *,
        send: Sender,
        fail: Callable[[Invocation, PenstockError], None],
        give_slot_back: Callable[[Invocation], None],
    ) -> None:
        self._monotonic = clock.monotonic
        self._timers = timers
        self._endpoints = endpoints
        self._send = send
        self._fail = fail
        self._give_slot_back = give_slot_back
        self._held: deque[Invocation] = deque()
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        """Requests held, those that have ended meanwhile included until the next look."""
        return len(self._held)

    def take_back(self, invocation: Invocation, reason: str) -> None:
        """A copy gave it back, or is gone."""
        copy = invocation.copy
        streamed = invocation.state == STREAMING or copy is None
        invocation.past = past = invocation.past.after(reason)
        step = retry.when_returned(past, streamed=streamed)
        if step.reason == "stream-broken" or copy is None:
            self._fail(invocation, refusals.stream_broken(invocation.endpoint))
            return
        self._give_slot_back(invocation)
        if copy.copy not in invocation.copy_failures:
            invocation.copy_failures += (copy.copy,)
        if step.do == "fail":
            self._fail(invocation, refusals.worker_died(past.deaths + past.company_deaths))
        elif step.do == "give-up":
            error = refusals.given_up(invocation.endpoint, reason, invocation.attempts)
            self._fail(invocation, error)
        elif not self._route_again(invocation, was_held=False):
            self._hold(invocation)

    def move(self, invocation: Invocation) -> None:
        """It left a queue, for another copy if one has room. It had not begun: this was no try."""
        copy = invocation.copy
        assert copy is not None
        assert invocation.state == SENT, "an answer that has begun can't be taken back"
        self._give_slot_back(invocation)
        invocation.attempts -= 1
        if not self._route_again(invocation, was_held=False, leaves=(copy.copy,)):
            self._hold(invocation)

    def try_held(self) -> None:
        """Something changed for the better, or some time went by: oldest first."""
        if not self._held:
            return
        held, self._held = self._held, deque()
        for invocation in held:
            if invocation.state == WAITING and not self._route_again(invocation, was_held=True):
                self._held.append(invocation)

    def close(self) -> None:
        """Tells those that are held that the server stops."""
        held, self._held = self._held, deque()
        for invocation in held:
            if invocation.state == WAITING:
                self._fail(invocation, refusals.stopping())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _route_again(
        self, invocation: Invocation, *, was_held: bool, leaves: tuple[int, ...] = ()
    ) -> bool:
        """True: it is on its way or has failed for good. False: no copy can take it now.

        `leaves`: the copy whose queue it left.
        """
        endpoint: Endpoint = invocation.entry
        if self._endpoints.get(endpoint.name) is not endpoint:
            self._fail(invocation, refusals.endpoint_not_found(endpoint.name))
            return True
        variant, failures, pinned = invocation.variant, invocation.copy_failures, invocation.pinned
        router = endpoint.router
        now = self._monotonic()
        answer = pick(router, invocation, variant, failures + leaves, now)
        step = retry.when_picked(
            answer, failures=failures, was_held=was_held, pinned=pinned, moves=bool(leaves)
        )
        if step.do == "route-any-copy":
            answer = pick(router, invocation, variant, failures, now)
            step = retry.when_picked(answer, failures=failures, was_held=was_held, pinned=pinned)
        if step.do == "route-any-variant":
            answer = pick(router, invocation, None, failures, now)
            step = retry.when_picked(answer, failures=failures, was_held=was_held)
        if isinstance(answer, NoRoute):
            if step.do == "fail":
                self._fail(invocation, refusals.no_route(endpoint.name, variant, answer))
            return step.do == "fail"
        if step.releases:
            router.release(answer.state)
            return False
        assert invocation.deadline is not None
        invocation.variant = answer.variant
        if leaves:
            answer = answer._replace(reason=retry.REBALANCED)
        self._send(invocation, answer, invocation.deadline, now)
        return True

    def _hold(self, invocation: Invocation) -> None:
        if retry.when_held(held=len(self._held)).do == "give-up":
            error = refusals.given_up(invocation.endpoint, "too many wait", invocation.attempts)
            self._fail(invocation, error)
            return
        invocation.state = WAITING
        invocation.link = None
        self._held.append(invocation)
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        when = retry.next_retry(now=self._monotonic())
        self._timer = self._timers.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.try_held()
        if self._held and self._timer is None:
            self._set_timer()
