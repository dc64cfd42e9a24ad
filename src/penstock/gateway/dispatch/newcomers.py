"""Requests that came when no copy could take them: held for one, or refused.

`core.holding` decides; this class gathers what it asks for, and puts those that are held into the
lines of `waiting.py`, whence they are routed like what came back. Nothing here is touched by a
request that finds a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import LimitConfig
from penstock.core.request import holding
from penstock.core.routing import NoRoute
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import Invocation, component_of
from penstock.gateway.dispatch.waiting import Waiting

#: (endpoint, variant, component) -> s until a copy can be ready at the earliest; None = not known.
ReadyIn = Callable[[str, str, str], float | None]

#: Instead of the router's answer, for a request that others came before.
OTHERS_WAIT = NoRoute("others-wait", None)


class Newcomers:
    """Of one dispatcher."""

    def __init__(self, limits: LimitConfig, waiting: Waiting, ready_in_s: ReadyIn) -> None:
        self._waiting = waiting
        self._ready_in_s = ready_in_s
        self._spec = holding.HoldSpec(
            count_max=limits.held_requests_max,
            bytes_max=limits.held_bytes_max,
            zero_capacity=limits.zero_capacity,
        )

    def must_wait(self, invocation: Invocation, endpoint: Endpoint) -> bool:
        """Whether others wait for the copies that it asks for, and one of these is there."""
        if not endpoint.held_count:
            return False
        asked = invocation.variant, component_of(invocation)
        return self._waiting.is_before(endpoint, *asked) and endpoint.router.is_open(*asked)

    def take(
        self, invocation: Invocation, endpoint: Endpoint, route: NoRoute, now: float
    ) -> PenstockError | None:
        """The error that refuses it; None: it waits."""
        variant, component = invocation.variant, component_of(invocation)
        pool = endpoint.pool_of(variant, component)
        others_wait = route is OTHERS_WAIT
        if not others_wait and (route.reason not in holding.NO_CAPACITY or pool is None):
            return refusals.no_route(endpoint.name, variant, route, component)
        assert pool is not None
        assert invocation.deadline is not None
        recorder = endpoint.recorder_of(variant, component)
        if recorder is not None and not others_wait:
            recorder.no_capacity()
        step = holding.decide(
            self._spec,
            zero_capacity=pool.zero_capacity,
            others_wait=others_wait,
            held_count=endpoint.held_count,
            held_bytes=endpoint.held_bytes,
            body_bytes=invocation.body_bytes,
            ready_in_s=self._ready_in_s(endpoint.name, pool.name, pool.component),
            deadline=invocation.deadline,
            now=now,
        )
        if step.do == holding.REFUSE:
            if step.reason != holding.REFUSED:
                self._waiting.want(endpoint, variant, component)
            return refusals.not_held(endpoint.name, pool, route, step)
        invocation.pinned = variant is not None
        invocation.copy_failures = ()
        invocation.recorder = recorder
        if recorder is not None:
            recorder.started()
        self._waiting.hold(invocation)
        return None
