"""Requests that no copy can take now: whether a new one is held, and the lines in which they wait.

A line holds the requests for one pool of copies; `core/waiting_lines.py` says who goes next. Lines
are checked whenever something has improved, and at the latest when the timer fires. A request that
ends for another reason leaves its line at once, so none is forgotten.

`core/request/holding.py` decides which new requests are held (`Newcomers` collects its input), and
`core/request/retry.py` which returned ones. Both kinds wait in the same lines and are routed again
in the same way. A request that finds a copy costs nothing here.

This file also requests capacity: the autoscaler gets the number of waiting requests when a line
begins, when it is gone, and after each check in between.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.request import holding, retry
from penstock.core.routing import NoRoute
from penstock.core.waiting_lines import WaitingLines
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import WAITING, Invocation, component_of, session_of
from penstock.gateway.timers import TimerHandle, Timers

#: (endpoint, variant, component, requests that wait): capacity is needed; 0 = no longer.
OnWaiting = Callable[[str, str, str, int], None]

#: (id of the `Endpoint` object, its name, variant; "": any, component; "": the variant's own model)
Place = tuple[int, str, str, str]


class Line:
    """What the scaler is told of the requests that wait for one pool of copies."""

    __slots__ = ("endpoint", "place", "reported", "variant")

    def __init__(self, place: Place, endpoint: Endpoint, variant: str) -> None:
        self.place = place
        self.endpoint = endpoint
        self.variant = variant  #: the variant whose capacity is needed
        self.reported = 0  #: the number of waiting requests that was last reported


class Waiting:
    """All requests of one dispatcher that wait for a copy."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        *,
        turn: Callable[[Invocation], str],
        fail: Callable[[Invocation, PenstockError], None],
        on_waiting: OnWaiting,
    ) -> None:
        """`turn`: routes a request again, and says what came of it as `WaitingLines.look` asks."""
        self._monotonic = clock.monotonic
        self._timers = timers
        self._turn = turn
        self._fail = fail
        self._on_waiting = on_waiting
        self._requests = WaitingLines[Place, Invocation]()
        self._lines: dict[Place, Line] = {}  #: those that are not empty
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def is_before(self, endpoint: Endpoint, variant: str | None, component: str | None) -> bool:
        """Whether other requests wait already for the copies that such a request would go to."""
        waiting = self._requests.line(_place(endpoint, variant, component))
        return any(not one.attempts for one in waiting)

    def hold(self, invocation: Invocation) -> None:
        """Puts a request at the end of its line."""
        endpoint: Endpoint = invocation.entry
        component = component_of(invocation)
        place = _place(endpoint, invocation.variant, component)
        line = self._lines.get(place)
        if line is None:
            pool = endpoint.pool_of(invocation.variant, component)
            variant = invocation.variant or (pool.name if pool is not None else "")
            line = self._lines[place] = Line(place, endpoint, variant)
        invocation.state = WAITING
        invocation.link = None
        invocation.line = line, self._requests.add(invocation, place)
        if not invocation.attempts:
            endpoint.hold(invocation.body_bytes)
        if not line.reported:
            self._report(line)
        if self._timer is None:
            self._set_timer()

    def want(self, endpoint: Endpoint, variant: str | None, component: str | None) -> None:
        """A request is refused: asks for capacity for later ones."""
        pool = endpoint.pool_of(variant, component)
        waiting = len(self._requests.line(_place(endpoint, variant, component)))
        if pool is not None:
            for count in (waiting + 1, waiting):
                self._on_waiting(endpoint.name, pool.name, pool.component, count)

    def leave(self, invocation: Invocation) -> None:
        """A request no longer waits, for whatever reason."""
        line, ticket = invocation.line
        self._requests.remove(ticket)
        if not invocation.attempts:
            line.endpoint.let_go(invocation.body_bytes)
        if not self._requests.line(line.place):
            del self._lines[line.place]
            self._report(line)

    def look(self) -> None:
        """Routes waiting requests again: something improved, or some time passed."""
        self._requests.look(lambda _, invocation: self._turn(invocation))
        for line in list(self._lines.values()):
            if line.reported != len(self._requests.line(line.place)):
                self._report(line)

    def refuse_newcomers(self) -> None:
        """The server stops: refuses requests that were never sent, so that they can go
        elsewhere."""
        self._stop([one for one in self._requests.all() if not one.attempts])

    def close(self) -> None:
        """Fails all held requests: the server stops."""
        self._stop(self._requests.all())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop(self, invocations: list[Invocation]) -> None:
        for invocation in invocations:
            if invocation.state == WAITING:
                self.leave(invocation)
                self._fail(invocation, refusals.stopping())

    def _report(self, line: Line) -> None:
        line.reported = len(self._requests.line(line.place))
        _, endpoint, _, component = line.place
        self._on_waiting(endpoint, line.variant, component, line.reported)

    def _set_timer(self) -> None:
        when = retry.next_retry(now=self._monotonic())
        self._timer = self._timers.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()
        if self._lines and self._timer is None:
            self._set_timer()


def _place(endpoint: Endpoint, variant: str | None, component: str | None) -> Place:
    """The line of a request: of its component, or of its variant, or of any variant.

    A request that names no variant is in the line of the only variant, if there is just one.
    """
    if component is not None:
        return id(endpoint), endpoint.name, "", component
    names = {one.name for one in endpoint.routes.variants}  # two generations have one name
    if variant is None and len(names) == 1:
        (variant,) = names
    return id(endpoint), endpoint.name, variant or "", ""


#: (endpoint, variant, component) -> s until a copy can be ready at the earliest; None = not known.
ReadyIn = Callable[[str, str, str], float | None]

#: Used instead of the router's answer when other requests wait already.
OTHERS_WAIT = NoRoute("others-wait", None)


class Newcomers:
    """Decides, for one dispatcher, what happens to new requests that find no copy."""

    def __init__(self, limits: LimitConfig, waiting: Waiting, ready_in_s: ReadyIn) -> None:
        self._waiting = waiting
        self._ready_in_s = ready_in_s
        self._spec = holding.HoldSpec(
            count_max=limits.held_requests_max,
            bytes_max=limits.held_bytes_max,
            zero_capacity=limits.zero_capacity,
        )

    def must_wait(self, invocation: Invocation, endpoint: Endpoint) -> bool:
        """Whether others wait for the same copies, and at least one of these copies exists."""
        if not endpoint.held_count:
            return False
        asked = invocation.variant, component_of(invocation)
        return self._waiting.is_before(endpoint, *asked) and endpoint.router.is_open(*asked)

    def take(
        self, invocation: Invocation, endpoint: Endpoint, route: NoRoute, now: float
    ) -> PenstockError | None:
        """The error that refuses the request; None: it waits."""
        variant, component = invocation.variant, component_of(invocation)
        pool = endpoint.pool_of(variant, component)
        others_wait = route is OTHERS_WAIT
        if not others_wait and (route.reason not in holding.NO_CAPACITY or pool is None):
            shadow = endpoint.shadow.component(component) if component and endpoint.shadow else None
            if shadow is not None:
                return refusals.component_is_shadow(endpoint.name, shadow)
            session = session_of(invocation)
            return refusals.no_route(endpoint.name, variant, route, component, session)
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
