"""Accepted requests that came back unanswered: routed again, held for a copy, or given up.

`core/request/retry.py` decides; this class calls it and carries out the result. Held requests wait
in the lines of `waiting.py` and are routed again from there. A request that its first copy answers
costs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.core.blame.poison_requests import died_of_it
from penstock.core.request import retry
from penstock.core.rollout.agreement import NEW_FAILED
from penstock.core.routing import NoRoute
from penstock.core.waiting_lines import BLOCKS, GONE, STAYS
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.endpoint_table import Endpoint, pick
from penstock.gateway.dispatch.invocation import (
    SENT,
    STREAMING,
    Invocation,
    component_of,
    session_of,
)
from penstock.gateway.dispatch.mirroring.shadows import DOOR
from penstock.gateway.dispatch.target_dispatcher import TargetDispatcher
from penstock.gateway.dispatch.targets import aim_at
from penstock.gateway.dispatch.waiting import OnWaiting, Waiting


class RetryingDispatcher(TargetDispatcher):
    """A dispatcher of copies, as far as it routes requests again, and all those that wait."""

    _endpoints: Mapping[str, Endpoint]

    def __init__(self, *, on_waiting: OnWaiting, **parts: Any) -> None:
        """`parts`: arguments of `TargetDispatcher`."""
        super().__init__(**parts)
        self._waiting = Waiting(
            self.clock, self._timers, turn=self._turn, fail=self._fail, on_waiting=on_waiting
        )

    def _take_back(self, invocation: Invocation, reason: str) -> None:
        """Its copy gave it back, or is gone."""
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
            self._fail(invocation, died_of_it(past))
        elif step.do == "give-up":
            error = refusals.given_up(invocation.endpoint, reason, invocation.attempts)
            self._fail(invocation, error)
        elif self._route_again(invocation, was_held=False) != GONE:
            self._hold(invocation)

    def _falls_back(self, invocation: Invocation) -> bool:
        """Sends a request whose artifact is gone to the one that serves, if there is another: only
        the one that a rollout brings may be missing without harm."""
        aimed = invocation.aimed
        if aimed is None or not aimed.incoming or invocation.door == DOOR:
            return False
        if aimed.routes.compared is not None and invocation.recorder is not None:
            invocation.recorder.compared(aimed.routes.compared.rollout, NEW_FAILED)
        self._give_slot_back(invocation)
        alone = aimed._replace(routes=replace(aimed.routes, compared=None))  # it is counted
        aim_at(invocation, alone.other)
        if self._route_again(invocation, was_held=False) != GONE:
            self._hold(invocation)
        return True

    def _turn(self, invocation: Invocation) -> str:
        """Routes a request that waits."""
        return self._route_again(invocation, was_held=True)

    def _move(self, invocation: Invocation) -> None:
        """Moves a request from a queue to another copy, if one has room. It had not begun, so this
        is no retry."""
        copy = invocation.copy
        assert copy is not None
        assert invocation.state == SENT, "an answer that has begun can't be taken back"
        self._give_slot_back(invocation)
        invocation.attempts -= 1
        if self._route_again(invocation, was_held=False, leaves=(copy.copy,)) != GONE:
            self._hold(invocation)

    def _route_again(
        self, invocation: Invocation, *, was_held: bool, leaves: tuple[int, ...] = ()
    ) -> str:
        """GONE: it was sent or has failed for good. STAYS, BLOCKS: no copy can take it now.

        `leaves`: the copy whose queue it left.
        """
        endpoint: Endpoint = invocation.entry
        failures, pinned = invocation.copy_failures, invocation.pinned
        if self._endpoints.get(endpoint.name) is not endpoint:
            return self._give_up(invocation, refusals.endpoint_not_found(endpoint.name), was_held)
        variant = invocation.variant
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
            if step.do != "fail":
                # A session waits for its own copy; all others in a line wait for the same copies.
                in_session = invocation.affinity is not None and invocation.affinity.session
                return STAYS if in_session else BLOCKS
            error = refusals.no_route(
                endpoint.name, variant, answer, component_of(invocation), session_of(invocation)
            )
            return self._give_up(invocation, error, was_held)
        if step.releases:
            router.release(answer.state)
            return STAYS
        assert invocation.deadline is not None
        if was_held:
            self._waiting.leave(invocation)
        invocation.variant = answer.variant
        if leaves:
            answer = answer._replace(reason=retry.REBALANCED)
        self._send(invocation, answer, invocation.deadline, now)
        return GONE

    def _give_up(self, invocation: Invocation, error: PenstockError, was_held: bool) -> str:
        if was_held:
            self._waiting.leave(invocation)
        self._fail(invocation, error)
        return GONE

    def _hold(self, invocation: Invocation) -> None:
        if retry.when_held(held=len(self._waiting)).do == "give-up":
            error = refusals.given_up(invocation.endpoint, "too many wait", invocation.attempts)
            self._fail(invocation, error)
            return
        self._waiting.hold(invocation)
