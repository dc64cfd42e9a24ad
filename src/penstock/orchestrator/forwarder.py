"""The driver of traffic between regions: each request goes to a region with room, and ends once.

The decisions are in `core/traffic`; this class asks it, sends, receives and reports back. A
request's life:

1. `take`: a region is chosen and a slot there reserved; or the request is held here until one has
   room; or it is refused at once.
2. Sent over a connection of the region's pool. Its deadline goes with it.
3. If the region is lost before an answer began, or refuses: sent again within its deadline, to
   another region first. Only requests that may be computed twice are; every inference may.
4. The answer is passed on (`answering.py`). A streamed one that breaks is continued in another
   region if its protocol allows it (`Relay.continuation`), or ends with the protocol's own error.
5. Its slot is free once the region's last byte has come.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.traffic.health import SERVING, SLOW_START
from penstock.core.traffic.outcomes import WHOLE, again_after_s
from penstock.core.traffic.spec import NO_REGION_SERVES, HeldForRegion, Refused, Sent
from penstock.errors import PenstockError
from penstock.gateway.dispatch.deadlines import Deadlines
from penstock.gateway.dispatch.draining import DrainWatch
from penstock.gateway.dispatch.invocation import ANSWERED, DONE, SENT, WAITING, Invocation
from penstock.gateway.http.call import Call
from penstock.gateway.timers import Timers
from penstock.orchestrator import refusals, requests
from penstock.orchestrator.answering import Answering
from penstock.orchestrator.asked import OrchestratedRequest
from penstock.orchestrator.passage import Passage
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.orchestrator.table import EndpointTraffic, TrafficTable


class Forwarder:
    """The requests of one orchestrator."""

    #: lower-case names of the headers that it reads, besides those that doors read
    interest: tuple[bytes, ...] = ()

    def __init__(
        self,
        table: TrafficTable,
        regions: Mapping[str, Region],
        *,
        clock: Clock,
        timers: Timers,
        limits: LimitConfig,
        recorder: TrafficRecorder,
    ) -> None:
        self._table = table
        self._regions = regions
        self._monotonic = clock.monotonic
        self._timers = timers
        self._timeout_s = limits.request_timeout_s
        self._stream_timeout_s = max(limits.request_timeout_s, limits.stream_timeout_s)
        self._recorder = recorder
        self._deadlines = Deadlines(clock, timers, self._expire, limit_s=limits.request_timeout_s)
        self._live = self._deadlines.live
        self._answering = Answering(self, table, regions, clock=clock, recorder=recorder)
        self._to_look: list[EndpointTraffic] = []
        self._drain = DrainWatch(clock, timers)
        self._stopping = False

    @property
    def in_flight(self) -> int:
        """Requests that were taken and whose last byte has not left."""
        return len(self._live)

    @property
    def held(self) -> int:
        """The requests of them that wait here for a region with room."""
        return sum(len(one.waiting) for one in self._table.all())

    def check_ready(self) -> None:
        """Raises NotNowError if no request could be answered: `stopping`, `no-region-reachable`."""
        if self._stopping:
            raise refusals.stopping()
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

    # Requests

    def take(self, call: Call, asked: OrchestratedRequest) -> None:
        """Takes a request; it is answered now or later."""
        passage = Passage(self._answering, call, asked, self._table.of(asked.endpoint))
        call.context = passage
        call.endpoint = asked.endpoint
        call.state = WAITING
        limit_s = self._stream_timeout_s if asked.streams else self._timeout_s
        own_s = asked.deadline_s
        call.deadline = call.received + (limit_s if own_s is None else min(own_s, limit_s))
        self._live[call.number] = call
        self._deadlines.watch_own(call, call.deadline)
        if self._stopping:
            self.fail(passage, refusals.stopping())
        else:
            self.route(passage)

    def written(self, call: Call) -> None:
        """The last byte of the answer has left."""
        self._over(call, cancelled=False)

    def abandoned(self, call: Call) -> None:
        """The client has gone: cancels its request everywhere."""
        self._over(call, cancelled=True)

    def _over(self, call: Call, *, cancelled: bool) -> None:
        passage: Passage | None = call.context
        if passage is None or self._live.pop(call.number, None) is None:
            return
        passage.done = True
        call.state = DONE
        self.let_go(passage, ok=None, outcome="client-gone")
        self._recorder.ended(passage, now=self._monotonic(), cancelled=cancelled)
        if self._drain.waits:
            self._drain.look()

    # To a region

    def route(self, passage: Passage) -> None:
        """Sends it to a region that has room, holds it here, or refuses it."""
        now = self._monotonic()
        answer = self._pick(passage, now)
        if isinstance(answer, Sent):
            self._send(passage, answer, now)
        elif isinstance(answer, HeldForRegion):
            passage.ticket = answer.ticket
            passage.route = answer.reason
            passage.call.state = WAITING
            passage.traffic.waiting[answer.ticket] = passage
        else:
            self._refused(passage, answer)

    def _pick(self, passage: Passage, now: float) -> Sent | HeldForRegion | Refused:
        """A region with a slot reserved there, a place in the queue here, or the reason why there
        is neither."""
        asked, traffic = passage.asked, passage.traffic
        traffic.asked_at = now
        allowed = traffic.allowed()
        if allowed is None and asked.endpoint:
            allowed = self._table.pinned(asked.endpoint)
        return traffic.router.pick(
            session=asked.session,
            prefix=asked.prefix,
            exclude=passage.tried,
            allowed=allowed,
            again=passage.attempts > 0,
            deadline=passage.call.deadline,
            now=now,
        )

    def _fits_elsewhere(self, passage: Passage, region: str, now: float) -> bool:
        """Whether a region other than this one would take it, now or as soon as it has room. It
        goes before all requests that were never sent. Reserves nothing."""
        router = passage.traffic.router
        tried, passage.tried = passage.tried, (*passage.tried, region)
        answer = self._pick(passage, now)
        passage.tried = tried
        if isinstance(answer, HeldForRegion):
            router.withdraw(answer.ticket)
            return answer.reason != NO_REGION_SERVES
        if not isinstance(answer, Sent):
            return False
        router.release(answer.region, ok=None, now=now)
        return answer.region != region

    def _refused(self, passage: Passage, refused: Refused) -> None:
        """No region takes it: the client gets a region's refusal if there is one, or else our
        reason."""
        regions = self._how_regions_are() if refused.reason == NO_REGION_SERVES else ""
        self._unanswered(passage, refusals.no_region(passage.asked.endpoint, refused, regions))

    def _unanswered(self, passage: Passage, error: PenstockError) -> None:
        if passage.kept is not None and not passage.begun:
            passage.call.state = ANSWERED
            passage.mode = WHOLE
            passage.give_whole(passage.kept)
            return
        self.fail(passage, error)

    def _send(self, passage: Passage, sent: Sent, now: float) -> None:
        """Sends it to the region where it has a slot: at once, or after a pause if that was asked
        before."""
        passage.slot = passage.region = sent.region
        passage.route = sent.reason
        if sent.region not in passage.tried:
            self._ask(passage, now)
            return
        # Every region that serves was asked before.
        wait_s = again_after_s(passage.attempts, kept=passage.kept is not None)
        self.let_go(passage, ok=None, outcome="asked-before")
        if wait_s is None:
            self._unanswered(passage, refusals.regions_lost(passage.asked.endpoint))
            return
        passage.attempts += 1
        passage.retry_timer = self._timers.call_at(now + wait_s, lambda: self._again(passage))

    def _again(self, passage: Passage) -> None:
        """The request failed in every region: tries all of them again."""
        passage.retry_timer = None
        passage.tried = ()
        if not passage.done:
            self.route(passage)

    def _ask(self, passage: Passage, now: float) -> None:
        call, region = passage.call, self._regions[passage.region]
        passage.attempts += 1
        passage.sent_at, passage.began_at = now, 0.0
        passage.answer = None
        call.state = SENT
        assert call.deadline is not None
        data = requests.written(
            call,
            passage.body,
            region.access,
            left_s=call.deadline - now,
            asks_room=passage.asked.asks_room,
        )
        passage.exchange = region.pool.ask(
            passage,
            data,
            head_only=call.method == b"HEAD",
            repeatable=passage.asked.repeatable,
        )

    def leave(self, region: str, reason: str) -> None:
        """A region sends nothing any more: requests that wait for its answers go elsewhere, before
        all that were never sent. They stay if no other region serves: the region may come back."""
        for call in list(self._live.values()):
            passage: Passage = call.context
            waits = passage.slot == region and passage.exchange is not None
            if not waits or not passage.may_leave:
                continue
            if self._fits_elsewhere(passage, region, self._monotonic()):
                passage.stop()
                self._answering.lost(passage, reason)

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
                passage: Passage = traffic.waiting.pop(ticket)
                passage.ticket = 0
                if isinstance(answer, Sent):
                    self._send(passage, answer, now)
                else:
                    self._refused(passage, answer)

    # Ends

    def let_go(self, passage: Passage, *, ok: bool | None, outcome: str) -> None:
        """Frees what the request holds: its slot in a region, or its place in the queue here."""
        passage.stop()
        traffic = passage.traffic
        if passage.ticket:
            traffic.router.withdraw(passage.ticket)
            traffic.waiting.pop(passage.ticket, None)
            passage.ticket = 0
        slot, passage.slot = passage.slot, ""
        if slot:
            first_byte_s = passage.began_at - passage.sent_at if passage.began_at else None
            now = self._monotonic()
            traffic.router.release(slot, ok=ok, first_byte_s=first_byte_s, now=now)
            passage.tell(outcome, now)
        self.look(traffic)

    def fail(self, passage: Passage, error: PenstockError) -> None:
        """The client gets an error of the orchestrator."""
        if not passage.begun:
            passage.answer = None  # the client did not get this partial answer
        passage.call.state = ANSWERED
        passage.give_error(error)

    def _expire(self, invocation: Invocation) -> None:
        passage: Passage = invocation.context
        endpoint, ticket, now = passage.asked.endpoint, passage.ticket, self._monotonic()
        error = refusals.deadline_passed(endpoint, held=bool(ticket))
        if ticket and passage.traffic.router.waits_for(ticket, now=now) == NO_REGION_SERVES:
            refused = Refused(NO_REGION_SERVES, None)
            error = refusals.no_region(endpoint, refused, self._how_regions_are())
        self.let_go(passage, ok=None, outcome="deadline-passed")
        self.fail(passage, error)

    # Stopping

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests from now on and waits for those in flight; False after
        `timeout_s`."""
        self._stopping = True
        return await self._drain.wait(lambda: not self._live, timeout_s)

    def close(self) -> None:
        """Fails all requests that are still in flight."""
        self._stopping = True
        for call in list(self._live.values()):
            passage: Passage = call.context
            if call.state < ANSWERED:
                self.let_go(passage, ok=None, outcome="stopping")
                self.fail(passage, refusals.stopping())
        self._deadlines.close()
