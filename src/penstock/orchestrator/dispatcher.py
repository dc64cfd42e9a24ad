"""The driver of traffic between regions: each request goes to a region with room, and ends once.

`gateway/dispatch/target_dispatcher.py` has the life of a request. The decisions are in
`core/traffic`; this class asks it, sends, receives and reports back:

1. `invoke`: a region is chosen and a slot there reserved; or the request is held here until one has
   room; or it is refused at once.
2. Sent over a connection of the region's pool. Its deadline goes with it.
3. If the region is lost before an answer began, or refuses: sent again within its deadline, to
   another region first. Only requests that may be computed twice are; every inference may.
4. The answer is passed on (`link.py`). A streamed one that breaks is continued in another region if
   its protocol allows it (`Relay.continuation`), or ends with the protocol's own error. The same
   holds if the region itself breaks it off because its copy is gone.
5. Its slot is free once the region's last byte has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from penstock.core.routing import NoRoute, Routed
from penstock.core.traffic import outcomes
from penstock.core.traffic.health import SERVING, SLOW_START
from penstock.core.traffic.outcomes import PIECES, WHOLE
from penstock.core.traffic.spec import NO_REGION_SERVES, HeldForRegion
from penstock.errors import PenstockError
from penstock.gateway.dispatch.invocation import ANSWERED, SENT, WAITING, Invocation
from penstock.gateway.dispatch.refusals import stopping
from penstock.gateway.dispatch.target_dispatcher import TargetDispatcher
from penstock.gateway.http.call import Call
from penstock.orchestrator import refusals
from penstock.orchestrator.link import ROOM, RegionLink
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.orchestrator.request import Attempt, OrchestratedRequest
from penstock.orchestrator.table import EndpointTraffic, TrafficTable
from penstock.wire.frames import Reply
from penstock.wire.http_client import Headers

RESUMES_MAX: Final = 4
_WHO: Final = "The orchestrator"

REQUEST_ID: Final = b"x-amzn-requestid"
NEW_SESSION_ID: Final = b"x-amzn-sagemaker-new-session-id"
CLOSED_SESSION_ID: Final = b"x-amzn-sagemaker-closed-session-id"


class RegionDispatcher(TargetDispatcher):
    """The requests of one orchestrator. Their `context` is an `OrchestratedRequest`."""

    def __init__(
        self,
        table: TrafficTable,
        regions: Mapping[str, Region],
        recorder: TrafficRecorder,
        **parts: Any,
    ) -> None:
        """`parts`: arguments of `TargetDispatcher`."""
        links = {
            name: RegionLink(region.access, region.pool, self) for name, region in regions.items()
        }
        super().__init__(ring=recorder, links=links, **parts)
        self._table = table
        self.served = table.served
        self._regions = regions
        self._recorder = recorder
        self._to_look: list[EndpointTraffic] = []

    def check_ready(self) -> None:
        """Raises NotNowError if no request could be answered: `stopping`, `no-region-reachable`."""
        if self._stopping:
            raise stopping(_WHO)
        if not self._table.unnamed.router.is_reachable(now=self._monotonic()):
            raise refusals.unreachable("Nothing can be answered here", self._how_regions_are())

    def _how_regions_are(self) -> str:
        """Each region with the reason why it is not used, for people."""
        router, now = self._table.unnamed.router, self._monotonic()
        health = {one["region"]: one["reason"] for one in router.snapshot(now=now)["regions"]}
        lives = (SERVING, SLOW_START)
        return ", ".join(
            f"{name}: {region.state if health[name] in lives else health[name]}"
            for name, region in self._regions.items()
        )

    def invoke(self, invocation: Invocation) -> None:
        traffic = invocation.entry = self._table.of(invocation.endpoint)
        traffic.in_flight += 1
        invocation.body_bytes = 0  # the listener's budget bounds bodies
        invocation.copy = invocation.recorder = invocation.reply = invocation.error = None
        invocation.route = None
        invocation.attempts = 0
        invocation.state = WAITING
        limit_s = self._timeout_s if invocation.stream is None else self._stream_timeout_s
        limit = invocation.received + limit_s
        own = invocation.deadline
        invocation.deadline = deadline = limit if own is None else min(own, limit)
        self._live[invocation.number] = invocation
        self._deadlines.watch_own(invocation, deadline)
        if self._stopping:
            self._fail(invocation, stopping(_WHO))
        else:
            self._route(invocation)

    # To a region

    def _route(self, invocation: Invocation) -> None:
        """Sends it to a region that has room, holds it here, or refuses it."""
        now = self._monotonic()
        self._carry_out(invocation, self._pick(invocation, now), now)

    def _carry_out(
        self, invocation: Invocation, answer: Routed | HeldForRegion | NoRoute, now: float
    ) -> None:
        if isinstance(answer, Routed):
            self._take_slot(invocation, answer, now)
        elif isinstance(answer, HeldForRegion):
            invocation.context.hold(answer.ticket, answer.reason, now)
            invocation.state = WAITING
            invocation.entry.waiting[answer.ticket] = invocation
        else:
            regions = self._how_regions_are() if answer.reason == NO_REGION_SERVES else ""
            error = refusals.no_region(invocation.endpoint, answer, regions)
            self._give_up(invocation, error)

    def _pick(self, invocation: Invocation, now: float) -> Routed | HeldForRegion | NoRoute:
        """A region with a slot reserved there, a place in the queue here, or the reason why there
        is neither."""
        asked: OrchestratedRequest = invocation.context
        traffic: EndpointTraffic = invocation.entry
        traffic.asked_at = now
        allowed = traffic.allowed()
        if allowed is None and invocation.endpoint:
            allowed = self._table.pinned(invocation.endpoint)
        return traffic.router.pick(
            session=asked.session,
            prefix=asked.prefix,
            exclude=asked.tried,
            allowed=allowed,
            again=invocation.attempts > 0,
            deadline=invocation.deadline,
            now=now,
        )

    def _fits_elsewhere(self, invocation: Invocation, region: str, now: float) -> bool:
        """Whether a region other than this one would take it, now or as soon as it has room. It
        goes before all requests that were never sent. Reserves nothing."""
        asked: OrchestratedRequest = invocation.context
        router = invocation.entry.router
        tried, asked.tried = asked.tried, (*asked.tried, region)
        answer = self._pick(invocation, now)
        asked.tried = tried
        if isinstance(answer, HeldForRegion):
            router.withdraw(answer.ticket)
            return answer.reason != NO_REGION_SERVES
        if isinstance(answer, NoRoute):
            return False
        router.release(answer.variant, ok=None, now=now)
        return answer.variant != region

    def _give_up(self, invocation: Invocation, error: PenstockError) -> None:
        """The client gets a region's refusal if there is one, or else our reason."""
        asked: OrchestratedRequest = invocation.context
        if asked.kept is None or asked.begun:
            self._fail(invocation, error)
            return
        reply, asked.headers = asked.kept
        asked.status, asked.mode = reply.status, WHOLE
        self._answer(invocation, reply, invocation.responder.on_reply)

    def _take_slot(self, invocation: Invocation, route: Routed, now: float) -> None:
        """Sends it to the region where it has a slot: at once, or after a pause if that was asked
        before."""
        asked: OrchestratedRequest = invocation.context
        invocation.copy, invocation.route = route.state, route
        asked.attempts.append(Attempt(route.variant, route.reason))
        if route.variant not in asked.tried:
            assert invocation.deadline is not None
            self._send(invocation, route, invocation.deadline, now)
            return
        # Every region that serves was asked before.
        wait_s = outcomes.again_after_s(invocation.attempts, kept=asked.kept is not None)
        self._give_slot_back(invocation, "asked-before")
        if wait_s is None:
            self._give_up(invocation, refusals.regions_lost(invocation.endpoint))
            return
        invocation.attempts += 1
        invocation.state = WAITING
        asked.retry_timer = self._timers.call_at(now + wait_s, lambda: self._again(invocation))

    def _again(self, invocation: Invocation) -> None:
        """The request failed in every region: tries all of them again."""
        invocation.context.retry_timer = None
        invocation.context.tried = ()
        self._route(invocation)

    def _send(self, invocation: Invocation, route: Routed, deadline: float, now: float) -> None:
        asked: OrchestratedRequest = invocation.context
        asked.attempts[-1].sent_at = now
        asked.status = 0
        invocation.attempts += 1
        invocation.state = SENT
        invocation.link = link = self._links[route.variant]
        link.send(invocation, 0, max(1, int((deadline - now) * 1000.0)))

    def leave(self, region: str, reason: str) -> None:
        """A region sends nothing any more: requests that wait for its answers go elsewhere, before
        all that were never sent. They stay if no other region serves: the region may come back."""
        for invocation in list(self._live.values()):
            waits = invocation.copy is not None and invocation.copy.instance_id == region
            if not waits or not invocation.context.may_leave:
                continue
            if self._fits_elsewhere(invocation, region, self._monotonic()):
                invocation.link.cancel(invocation)
                self.on_returned(invocation, reason)

    # Requests that wait here; the routers decide which may go

    def look(self, traffic: EndpointTraffic) -> None:
        """Something has changed for the requests that wait for this endpoint."""
        if not self._to_look:
            self._timers.call_soon(self._look)
        self._to_look.append(traffic)

    def look_all(self) -> None:
        """Time has passed: checks all waiting requests. Call it a few times per second."""
        for traffic in self._table.all():
            if traffic.waiting:
                self.look(traffic)

    def _look(self) -> None:
        looked, self._to_look = self._to_look, []
        for traffic in dict.fromkeys(looked):
            now = self._monotonic()
            for ticket, answer in traffic.router.released(now=now):
                invocation = traffic.waiting.pop(ticket)
                invocation.context.let_go(now)
                self._carry_out(invocation, answer, now)

    def _leave_queue(self, invocation: Invocation) -> None:
        asked: OrchestratedRequest = invocation.context
        if asked.retry_timer is not None:
            asked.retry_timer.cancel()
        if asked.ticket:
            invocation.entry.router.withdraw(asked.ticket)
            del invocation.entry.waiting[asked.ticket]
            asked.let_go(self._monotonic())
            self.look(invocation.entry)

    # Reports of links (RegionEvents)

    def on_head(
        self, invocation: Invocation, status: int, headers: Headers, length: int | None
    ) -> str:
        asked: OrchestratedRequest = invocation.context
        attempt = asked.attempts[-1]
        attempt.began_at = self._monotonic()
        asked.status, asked.headers = status, headers
        for name, value in headers:
            if name == REQUEST_ID:
                asked.region_request_id = value.decode("latin-1")
            elif name == ROOM and value.isdigit():
                way_s = self._regions[attempt.region].way_s
                self._table.room_told(invocation.entry, attempt.region, int(value), way_s=way_s)
        begun = asked.begun
        asked.mode = outcomes.mode_of(status, length, begun=begun, repeatable=asked.repeatable)
        if asked.mode == PIECES and not begun:
            asked.begun = True
            if asked.relay_of is not None:
                asked.relay = asked.relay_of(cast(Call, invocation), headers)
            asked.length = length if asked.relay is None else None
        return asked.mode

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        self._note_answer(invocation)
        self._answer(invocation, reply, invocation.responder.on_reply)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        self._note_answer(invocation)
        relay = invocation.context.relay
        self._finish(invocation, relay.rest() if relay is not None else b"")

    def _note_answer(self, invocation: Invocation) -> None:
        """An answer is complete: what it says about its region, and about a session."""
        asked: OrchestratedRequest = invocation.context
        told = dict(asked.headers)
        router, now = invocation.entry.router, self._monotonic()
        opened = told.get(NEW_SESSION_ID)
        if opened is not None:  # later requests of the session go there too
            session = opened.partition(b";")[0].strip().decode("latin-1")
            router.bind_session(session, asked.attempts[-1].region, now=now)
        closed = told.get(CLOSED_SESSION_ID)
        if closed is not None:
            router.close_session(closed.decode("latin-1"), now=now)
        ok = outcomes.verdict(
            asked.status,
            may_retry=told.get(b"x-should-retry") != b"false",
            model_errors_are_500=asked.model_errors_are_500,
        )
        self._let_go(invocation, ok, f"status-{asked.status}")

    def on_refused(self, invocation: Invocation, reply: Reply) -> None:
        asked: OrchestratedRequest = invocation.context
        region = asked.attempts[-1].region
        step = outcomes.when_turned_down(reply.status, begun=asked.begun)
        if step.ok is False:
            self._regions[region].refused_us(reply.status)
        elif not asked.begun:
            asked.kept = reply, asked.headers
        self._let_go(invocation, step.ok, f"status-{reply.status}")
        asked.tried += (region,)
        self._recorder.sent_again(step.reason)
        if asked.begun:
            asked.kept = None  # a client that has a part of another answer can't use it
        if step.do == "fail":
            self._fail(invocation, refusals.broken(invocation.endpoint, region))
        else:
            self._route(invocation)

    def on_returned(self, invocation: Invocation, reason: str) -> None:
        asked: OrchestratedRequest = invocation.context
        region = asked.attempts[-1].region
        step = outcomes.when_lost(reason, begun=asked.begun, repeatable=asked.repeatable)
        self._let_go(invocation, step.ok, reason)
        asked.tried += (region,)
        if step.do == "resume":
            self._resume(invocation, region)
        elif step.do == "fail":
            self._fail(invocation, refusals.lost(invocation.endpoint, region))
        else:
            self._recorder.sent_again(step.reason)
            self._route(invocation)

    def _resume(self, invocation: Invocation, region: str) -> None:
        """A part of the answer was sent. It was all that was needed, or another region may continue
        it."""
        asked: OrchestratedRequest = invocation.context
        relay = asked.relay
        ending = relay.ending() if relay is not None else None
        body = None
        if ending is None and relay is not None and asked.resumed < RESUMES_MAX:
            body = relay.continuation()
        if ending is not None:
            self._finish(invocation, ending)
        elif body is not None:
            asked.resumed += 1
            invocation.body = body
            self._recorder.sent_again("resumed")
            self._route(invocation)
        elif relay is not None and relay.broken_off:
            self._finish(invocation, relay.broken_off)
        else:
            self._fail(invocation, refusals.broken(invocation.endpoint, region))

    # Ends

    def _finish(self, invocation: Invocation, last: bytes) -> None:
        """The client gets these bytes, and then its answer ends."""
        reply = Reply(invocation.context.status, 0, 0, 0, 0, 0, 0, b"", last)
        self._answer(invocation, reply, invocation.responder.on_end)

    def _answer(
        self, invocation: Invocation, reply: Reply, respond: Callable[[Invocation, Reply], None]
    ) -> None:
        invocation.state = ANSWERED
        invocation.reply = reply
        try:
            respond(invocation, reply)
        except Exception as raised:
            self._responder_failed(invocation, raised)

    def cancel(self, invocation: Invocation) -> None:
        if invocation.context is not None:  # else its door had not read it yet
            invocation.context.cancelled = True
            super().cancel(invocation)

    def _give_slot_back(self, invocation: Invocation, outcome: str = "") -> None:
        self._let_go(invocation, None, outcome)

    def _let_go(self, invocation: Invocation, ok: bool | None, outcome: str) -> None:
        """Frees its slot in a region. `ok`: whether the region is healthy, by its answer; None:
        unknown."""
        copy, invocation.copy = invocation.copy, None
        if copy is None:
            return
        attempt, traffic, now = invocation.context.attempts[-1], invocation.entry, self._monotonic()
        attempt.over_at, attempt.outcome = now, outcome
        traffic.router.release(attempt.region, ok=ok, first_byte_s=attempt.first_byte_s, now=now)
        self.look(traffic)

    def _expire(self, invocation: Invocation) -> None:
        endpoint, ticket = invocation.endpoint, invocation.context.ticket
        error = refusals.deadline_passed(endpoint, held=bool(ticket))
        if ticket:
            router = invocation.entry.router
            if router.waits_for(ticket, now=self._monotonic()) == NO_REGION_SERVES:
                regions = self._how_regions_are()
                error = refusals.no_region(endpoint, NoRoute(NO_REGION_SERVES, None), regions)
        self._end(invocation, error, "deadline-passed")

    def close(self) -> None:
        """Fails all requests that are still in flight."""
        self._stopping = True
        for invocation in list(self._live.values()):
            if invocation.state < ANSWERED:
                self._end(invocation, stopping(_WHO), "stopping")
        self._deadlines.close()
