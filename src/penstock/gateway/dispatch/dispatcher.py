"""The driver of routing: sends each request to a copy, and makes sure that it ends exactly once.

`target_dispatcher.py` has the life of a request. The decisions are in `core/` (`Admission`,
`EndpointRouter`, `retry`); this class waits, calls them and carries them out. It knows no socket:
links and timers are passed in, so that the same code runs under a manual clock.

A new request is admitted and routed in one step, or refused at once, or held if no copy can take it
yet (`waiting.py`). One that its copy gives back (its worker died, its connection broke) is routed
again within its deadline, held while no copy is healthy, or given up (`retries.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.blame.poison_requests import CONNECTION_LOST
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.request.retry import REBALANCED
from penstock.core.routing import CopyState, NoRoute, Routed
from penstock.core.routing.outliers import NO_ANSWER
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.endpoint_table import (
    Endpoint,
    EndpointTable,
    SessionsOf,
    pick,
)
from penstock.gateway.dispatch.invocation import (
    ANSWERED,
    SENT,
    STREAMING,
    WAITING,
    Invocation,
    component_of,
)
from penstock.gateway.dispatch.link import FrameLink, InstanceLink, LinkEvents
from penstock.gateway.dispatch.mirroring import shadows
from penstock.gateway.dispatch.mirroring.comparing import FAILED, Answer, Comparisons
from penstock.gateway.dispatch.mirroring.scoring import Scorers
from penstock.gateway.dispatch.mirroring.shadows import Mirrors
from penstock.gateway.dispatch.outliers import OutlierWatch
from penstock.gateway.dispatch.rebalancing import Rebalancing
from penstock.gateway.dispatch.recording import ExplainRing, NoRecorder, Recorders
from penstock.gateway.dispatch.retries import RetryingDispatcher
from penstock.gateway.dispatch.sequences import GatewaySequences, SequenceDrains
from penstock.gateway.dispatch.sessions import GatewaySessions
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.dispatch.targets import aim
from penstock.gateway.dispatch.waiting import OTHERS_WAIT, Newcomers, OnWaiting, ReadyIn
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import Timers
from penstock.metrics.item_failures import apart
from penstock.wire.frames import Reply

#: Limit for the bodies of all requests in flight, including held ones.
BODIES_BYTES_MAX = 1 << 30
#: The door of InvokeEndpoint; endpoints with AsyncInferenceConfig refuse its requests.
_AT_ONCE = "runtime"
#: Code of the error of a request for a target model that does not exist.
_NO_ARTIFACT = "target-model-not-found"
_COPY_EVENTS = ("copy-lost", "copy-ready", "copy-failed")

LinkFactory = Callable[[str, str, LinkEvents], InstanceLink]


class Dispatcher(RetryingDispatcher):
    """The requests of all endpoints of one gateway process."""

    ring: ExplainRing

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        rng: random.Random,
        limits: LimitConfig,
        recorders: Recorders | None = None,
        ids: RequestIds | None = None,
        link_factory: LinkFactory = FrameLink,
        on_waiting: OnWaiting = lambda *waiting: None,
        ready_in_s: ReadyIn = lambda *pool: None,
        shared: bool = False,
        sessions_of: SessionsOf | None = None,
        captures: Captures | None = None,
    ) -> None:
        """
        Args:
            captures: the data capture; None: this process captures nothing.
            shared: other gateways send to the same copies; instances are asked to report how much.
            sessions_of: makes an endpoint's sessions; for sessions shared with other gateways.
            on_waiting: called with the number of requests that wait for a variant or a component.
            ready_in_s: when a copy of a variant or a component can be ready at the earliest.
        """
        ids = ids or RequestIds()
        self._links: dict[str, InstanceLink] = {}
        super().__init__(
            clock=clock,
            timers=timers,
            limits=limits,
            ids=ids,
            ring=ExplainRing(clock, ids),
            links=self._links,
            on_waiting=on_waiting,
        )
        self.table = EndpointTable(rng, recorders or NoRecorder(), sessions_of, shared=shared)
        self.served = self.table.served
        self.sessions = GatewaySessions(clock, self.table.endpoints)
        self.sequences = GatewaySequences(self.invoke)
        self._sequence_drains = SequenceDrains(clock, timers, self._drains)
        self._link_factory = link_factory
        self._rng = rng
        self._endpoints = self.table.endpoints
        self._shared = shared
        self._captures = captures
        self._mirrors = Mirrors(rng, self.written)
        self._scorers = Scorers(clock, self.ids, rng, self._endpoints, self.invoke, self.written)
        self._comparisons = Comparisons(clock, self.ids, rng, self.written, self._scorers)
        #: responders of requests that are nobody's calls, beside those of shadows
        self._nobodys = (self._comparisons, self._scorers)
        self._newcomers = Newcomers(limits, self._waiting, ready_in_s)
        self._rebalancing = Rebalancing(self.table, self._links)
        self._outliers = OutlierWatch(
            clock,
            timers,
            self._endpoints,
            self._links,
            take_back=self._take_back,
            let_back=self._copies_well,
        )

    @property
    def in_flight(self) -> int:
        copies = len(self._mirrors.live) + len(self._comparisons.live) + len(self._scorers.live)
        return len(self._live) - copies

    # Requests

    def invoke(self, invocation: Invocation) -> None:
        endpoint = self._endpoints.get(invocation.endpoint)
        refused: PenstockError | None = None
        if endpoint is not None and endpoint.keeps_sequences:
            if not self.sequences.bind(invocation, endpoint, self._monotonic()):
                return
            refused = self.sequences.refusal(invocation)
        number = invocation.number
        if not number:
            invocation.number = number = self.ids.next()
        self._live[number] = invocation
        invocation.copy = invocation.recorder = invocation.reply = invocation.error = None
        invocation.route = None
        invocation.attempts = 0
        invocation.entry = endpoint
        if endpoint is None:
            self._fail(invocation, refusals.endpoint_not_found(invocation.endpoint))
            return
        if endpoint.targets:
            aim(invocation, endpoint.targets, self._rng.random())
        outstanding = endpoint.in_flight
        endpoint.in_flight = outstanding + 1
        invocation.body_bytes = body_bytes = len(invocation.body)
        self._bodies_bytes += body_bytes
        if self._stopping or self._bodies_bytes > BODIES_BYTES_MAX:
            error = refusals.stopping() if self._stopping else refusals.memory_full()
            self._refuse(invocation, endpoint, error)
            return
        if refused is not None:
            self._refuse(invocation, endpoint, refused)
            return
        received = invocation.received
        stream = invocation.stream
        limit = received + (
            self._timeout_s if stream is None else stream.timeout_s or self._stream_timeout_s
        )
        deadline = invocation.deadline
        own = deadline is not None and deadline < limit
        if deadline is None or not own:
            invocation.deadline = deadline = limit
        if endpoint.beside:  # those that wait are in no copy's way, those of other gateways are
            outstanding += endpoint.beside
        refusal = endpoint.admission.admit(
            outstanding=outstanding, lanes=endpoint.lanes, deadline=deadline, now=received
        )
        if refusal is not None and endpoint.admission.stands(
            refusal, may_begin=endpoint.may_begin(invocation)
        ):
            self._refuse(invocation, endpoint, refusals.not_admitted(endpoint.name, refusal))
            return
        variant = invocation.variant
        if invocation.affinity is None and not endpoint.looks_closer:
            routed = endpoint.router.pick(variant=variant)
        elif endpoint.routes.asynchronous and invocation.door == _AT_ONCE:
            self._refuse(invocation, endpoint, refusals.asynchronous_only(endpoint.name))
            return
        elif self._newcomers.must_wait(invocation, endpoint):
            routed = OTHERS_WAIT
        else:
            routed = pick(endpoint.router, invocation, variant, (), received)
        if isinstance(routed, NoRoute):
            refused = self._newcomers.take(invocation, endpoint, routed, received)
            if refused is not None:
                self._refuse(invocation, endpoint, refused)
                return
        else:
            invocation.pinned = variant is not None
            invocation.copy_failures = ()
            invocation.variant = routed.variant
            invocation.recorder = recorder = endpoint.recorders[routed.state.pool]
            recorder.started()
            self._send(invocation, routed, deadline, received)
        if own or invocation.stream is not None:
            self._deadlines.watch_own(invocation, deadline)
        elif deadline < self._deadlines.timer_at:
            self._deadlines.watch(deadline)

    def _send(self, invocation: Invocation, route: Routed, deadline: float, now: float) -> None:
        state = route.state
        invocation.state = SENT
        invocation.route = route
        invocation.copy = state
        invocation.attempts += 1
        invocation.link = link = self._links[state.instance_id]
        if route.helper is not None:
            self._ask_to_load(route.helper, invocation)
        left_ms = int((deadline - now) * 1000.0)
        link.send(invocation, state.copy, left_ms if left_ms > 0 else 1)
        if self._outliers.timer is None and invocation.entry.router.watched:
            self._outliers.begin()

    def _ask_to_load(self, host: CopyState, invocation: Invocation) -> None:
        """A target model is hot: another host should load it as well."""
        assert invocation.affinity is not None
        link = self._links.get(host.instance_id)
        if link is not None:
            link.tell({"op": "models", "copy": host.copy, "load": invocation.affinity.model})

    def _refuse(self, invocation: Invocation, endpoint: Endpoint, error: PenstockError) -> None:
        """Refuses a request before it was in flight."""
        recorder = endpoint.recorder_of(invocation.variant, component_of(invocation))
        if recorder is not None:
            recorder.refused(error.code, error.status, invocation.door)
        self._fail(invocation, error)

    def _expire(self, invocation: Invocation) -> None:
        error = refusals.deadline_passed(invocation.endpoint)
        if invocation.state == WAITING and not invocation.attempts:
            error = refusals.no_capacity_in_time(invocation.endpoint, component_of(invocation))
        elif invocation.copy is not None:
            invocation.copy.missed += 1
        model = invocation.affinity.model if invocation.affinity is not None else None
        if model is not None and not invocation.entry.router.is_loaded(model):
            error = refusals.target_model_not_ready(model)
        self._end(invocation, error, "deadline-passed")

    def cancel(self, invocation: Invocation) -> None:
        if not self.sequences.cancel(invocation):
            super().cancel(invocation)

    def _leave_queue(self, invocation: Invocation) -> None:
        self._waiting.leave(invocation)

    def _give_slot_back(self, invocation: Invocation, outcome: str = "") -> None:
        copy = invocation.copy
        if copy is not None:
            invocation.copy = None
            invocation.entry.router.release(copy)
            if copy.draining and not copy.outstanding:
                self._drains.released(copy)

    # Reports of links (LinkEvents)

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        if invocation.state != SENT:
            self._fail(invocation, refusals.stream_broken(invocation.endpoint))
            return
        invocation.state = ANSWERED
        invocation.reply = reply
        if invocation.copy is not None:
            invocation.copy.heard(self._took_s(invocation))
        endpoint: Endpoint = invocation.entry
        if reply.batch_rows:  # else the model did not run for it, and it says nothing of a run
            endpoint.admission.observe(
                reply.run_us, reply.batch_rows, reply.lane_us, invocation.received
            )
        try:
            if endpoint.generates:
                self._note_end(invocation, reply)
            if endpoint.keeps_sequences:
                self._note_end_of_sequence(invocation)
            if endpoint.only_answers:
                invocation.responder.on_reply(invocation, reply)
            else:
                self._answer_and_more(endpoint, invocation, reply)
        except Exception as raised:
            self._responder_failed(invocation, raised)

    def _answer_and_more(self, endpoint: Endpoint, invocation: Invocation, reply: Reply) -> None:
        """Answers; then the call is captured and copied."""
        if invocation.responder in self._nobodys:
            invocation.responder.on_reply(invocation, reply)
            return
        record, captures, body = None, self._captures, invocation.body
        if endpoint.capture is not None and captures is not None:
            record = captures.sample(endpoint.capture, invocation, reply.meta)
        invocation.responder.on_reply(invocation, reply)
        if record is not None and captures is not None:
            captures.answered(record, reply.body)
        self._copy(invocation, body, Answer(reply.body))

    def _copy(self, original: Invocation, body: bytes, answer: Answer | None) -> None:
        """Sends a copy of a request that was answered to the shadow variant, and one to the other
        side of a rollout, where there are such. `answer`: None: it is not compared."""
        endpoint: Endpoint = original.entry
        if self._stopping or original.responder in self._nobodys:
            return
        with apart("copies of requests", original.endpoint):  # the call itself is over
            now = self._monotonic()
            if endpoint.shadow is not None:
                self._send_copy(self._mirrors.copy(endpoint.shadow, original, body, now=now), now)
            if original.route is None or answer is None:
                return
            if endpoint.compared:
                by = original.route.state
                self._send_copy(self._comparisons.copy(original, by, body, answer, now=now), now)
            if original.aimed is not None and original.aimed.routes.compared is not None:
                found = self._comparisons.copy_to_other_artifact(original, body, answer, now=now)
                self._send_copy(found, now)

    def _send_copy(self, found: tuple[Invocation, Routed] | None, now: float) -> None:
        if found is not None:
            made, routed = found
            assert made.deadline is not None
            self._live[made.number] = made
            self._send(made, routed, made.deadline, now)
            self._deadlines.watch_own(made, made.deadline)

    def _stream_begins(
        self, invocation: Invocation, stream: StreamObserved, meta: bytes | None
    ) -> None:
        endpoint: Endpoint = invocation.entry
        if endpoint.only_answers or invocation.responder is self._scorers:
            return
        stream.compared = self._comparisons.parts(invocation)
        if invocation.responder is self._comparisons:
            return
        spec = endpoint.capture
        if spec is not None and self._captures is not None:
            record = self._captures.sample(spec, invocation, meta or b"")
            if record is not None:
                stream.captured = self._captures.stream(record)

    def _took_s(self, invocation: Invocation) -> float:
        """How long the copy took, in s. 0 if other copies had the request before: the time says
        nothing about this copy."""
        return 0.0 if invocation.copy_failures else self._monotonic() - invocation.received

    def _note_end_of_sequence(self, invocation: Invocation) -> None:
        affinity = invocation.affinity
        if affinity is not None and affinity.ends and affinity.session is not None:
            router = invocation.entry.router
            router.sequence_ended(affinity.session, now=self._monotonic())

    def _note_end(self, invocation: Invocation, reply: Reply) -> None:
        stream = invocation.stream
        if stream is None:
            stream = invocation.stream = StreamObserved()
        stream.ended(reply, invocation.received, self._monotonic())

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        began = invocation.state == STREAMING
        invocation.state = ANSWERED
        invocation.reply = reply
        if invocation.copy is not None:
            invocation.copy.heard()
        invocation.entry.admission.observe(
            reply.run_us, reply.batch_rows, reply.lane_us, invocation.received
        )
        try:
            self._note_end(invocation, reply)
            if invocation.entry.keeps_sequences:
                self._note_end_of_sequence(invocation)
            stream = invocation.stream
            assert stream is not None
            if not began:
                self._stream_begins(invocation, stream, reply.meta)
            captured, compared, body = stream.captured, stream.compared, invocation.body
            invocation.responder.on_end(invocation, reply)
            if captured is not None and self._captures is not None:
                self._captures.ended(captured)
            self._copy(invocation, body, Answer.of_parts(compared))
        except Exception as raised:
            self._responder_failed(invocation, raised)

    def on_error(self, invocation: Invocation, reply: Reply) -> None:
        invocation.reply = reply
        failed: Answer | None = FAILED
        if invocation.state == STREAMING:
            self._note_end(invocation, reply)
            assert invocation.stream is not None
            failed = Answer.broken(invocation.stream)
        error = refusals.of_instance(reply)
        copy = invocation.copy
        if copy is not None and error.code not in NO_ANSWER:
            copy.heard(self._took_s(invocation))
        elif copy is not None and error.code == "deadline-passed":
            copy.missed += 1
        if error.code == _NO_ARTIFACT and self._falls_back(invocation):
            return
        body = invocation.body
        self._fail(invocation, error)
        if error.family in shadows.OF_MODEL:
            self._copy(invocation, body, failed)

    def on_returned(self, invocation: Invocation, reason: str) -> None:
        copy = invocation.copy
        if reason == REBALANCED and copy is not None and self._rebalancing.expects(copy.copy):
            self._move(invocation)
        else:
            self._take_back(invocation, reason)

    def _take_back(self, invocation: Invocation, reason: str) -> None:
        if invocation.door == shadows.DOOR:  # it is tried once
            self._give_slot_back(invocation)
            self._fail(invocation, shadows.lost(invocation, reason))
        else:
            super()._take_back(invocation, reason)

    def on_event(self, instance_id: str, event: dict[str, Any]) -> None:
        kind, copy = event.get("event"), event.get("copy")
        if kind in _COPY_EVENTS and isinstance(copy, int):
            self.table.set_lost(instance_id, copy, kind != "copy-ready")
            if kind == "copy-ready":
                self._copies_well(instance_id)
        elif kind == "gave-back" and isinstance(copy, int):
            self._rebalancing.gave_back(instance_id, copy)
        elif kind == "models-changed" and isinstance(copy, int):
            self.table.set_models(
                instance_id,
                copy,
                event.get("loaded", []),
                event.get("gone", []),
                free_bytes=int(event.get("free_bytes", 0)),
            )

    def on_counts(self, instance_id: str, counts: Iterable[tuple[int, int]]) -> None:
        self.table.set_others(instance_id, counts)

    def on_usable(self, instance_id: str, *, fresh: bool) -> None:
        self.table.set_usable(instance_id, True, fresh=fresh)
        if fresh and self._shared:
            self._links[instance_id].tell({"op": "share-counts"})
        self._copies_well(instance_id)

    def _copies_well(self, instance_id: str) -> None:
        """Copies there may be picked again: waiting requests go first, then queues are balanced."""
        self._waiting.look()
        self._rebalancing.copies_well(instance_id)

    def on_unusable(self, instance_id: str, unanswered: list[Invocation]) -> None:
        self.table.set_usable(instance_id, False)
        for invocation in unanswered:
            if invocation.state == STREAMING:
                self._fail(invocation, refusals.stream_broken(invocation.endpoint))
            elif invocation.state == SENT:
                self._take_back(invocation, CONNECTION_LOST)
        self._rebalancing.lost(instance_id)

    def on_paused(self, instance_id: str, paused: bool) -> None:
        self.table.set_paused(instance_id, paused)

    # Endpoints and instances

    def publish(self, routes: EndpointRoutes) -> None:
        """Replaces an endpoint's routes as a whole. Copies that stay keep their counts."""
        gone = self.table.publish(routes)
        self._drains.add(gone)
        self._sequence_drains.add(gone, self._endpoints[routes.endpoint])
        self._waiting.look()
        self._rebalancing.routes_changed(routes.endpoint, [state.copy for state in gone])

    def withdraw(self, endpoint: str) -> None:
        """The endpoint was deleted: new requests are refused, those in flight are still
        answered."""
        found = self._endpoints.get(endpoint)
        gone = self.table.withdraw(endpoint)
        if found is not None:
            for state in gone:
                found.router.let_go(state)  # no request can come for its sequences
        self._drains.add(gone)
        self._waiting.look()
        self._rebalancing.routes_changed(endpoint, [state.copy for state in gone])

    async def connect(self, instance_id: str, address: str, *, timeout_s: float = 10.0) -> None:
        """Opens the link to an instance and keeps it open. For a known id it opens a new link.

        Raises:
            NotNowError: instance-unreachable; the link keeps trying until `disconnect`.
        """
        await self.disconnect(instance_id)
        link = self._links[instance_id] = self._link_factory(instance_id, address, self)
        await link.open(timeout_s)

    async def disconnect(self, instance_id: str) -> None:
        """Ends the link; unanswered requests are retried elsewhere. Idempotent."""
        link = self._links.pop(instance_id, None)
        if link is not None:
            self.table.set_usable(instance_id, False, fresh=True)
            await link.close()

    def outstanding(self, copy: int) -> int:
        """Requests in flight on a copy that is in the routes; 0 for any other."""
        return self.table.outstanding(copy)

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        """Waits until copies that left the routes have answered everything, and their sequences
        have ended; False after `timeout_s`."""
        return await self._sequence_drains.drained(copies, timeout_s)

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests from now on and waits for those in flight; False after `timeout_s`.

        Held requests that were never sent are refused too: no copy is started for them any more.
        """
        self._stopping = True
        self._mirrors.stop(self.cancel)
        self._comparisons.stop(self.cancel)
        self._scorers.stop(self.cancel)
        self._waiting.refuse_newcomers()
        return await super().drain(timeout_s)

    async def close(self) -> None:
        """Ends all links. Requests that are still in flight get an error."""
        self._stopping = True
        for instance_id in list(self._links):
            await self.disconnect(instance_id)
        self._waiting.close()
        self._deadlines.close()
        self._sequence_drains.close()
        self._outliers.close()

    # Reading

    def routes(self, endpoint: str) -> EndpointRoutes | None:
        found = self._endpoints.get(endpoint)
        return found.routes if found is not None else None

    def published(self) -> list[EndpointRoutes]:
        """The routes of all endpoints, in the order of their names."""
        return [endpoint.routes for _, endpoint in sorted(self._endpoints.items())]

    def endpoint_names(self) -> list[str]:
        return sorted(self._endpoints)

    def is_ready(self, endpoint: str, component: str | None = None) -> bool:
        """Whether any copy (of `component`, if given) can take a request now."""
        return any(True for _ in self.table.healthy_copies(endpoint, component))

    def ready_count(self, endpoint: str) -> int:
        """The number of copies of an endpoint that can take a request now."""
        return sum(1 for _ in self.table.healthy_copies(endpoint))

    def takes_components(self, endpoint: str) -> bool:
        found = self._endpoints.get(endpoint)
        return found is not None and found.routes.takes_components

    def hosts_for(self, endpoint: str, model: str) -> list[int]:
        """Copies that should load a target model before its calls; empty: no host can take it
        now."""
        found = self._endpoints.get(endpoint)
        if found is None:
            return []
        artifact = found.artifact_of(model)
        return [one.copy for one in found.router.hosts_for(artifact, now=self._monotonic())]

    def is_loaded(self, endpoint: str, model: str) -> bool:
        """Whether a target model can answer without being loaded first."""
        found = self._endpoints.get(endpoint)
        return found is not None and found.router.is_loaded(found.artifact_of(model))

    def loaded_models(self, endpoint: str) -> set[str]:
        """The target models that are loaded on any host that takes requests."""
        found = self._endpoints.get(endpoint)
        return found.router.loaded_models() if found is not None else set()

    def is_multi_model(self, endpoint: str) -> bool:
        found = self._endpoints.get(endpoint)
        return found is not None and any(one.multi_model for one in found.routes.variants)

    def takes_containers(self, endpoint: str, variant: str | None) -> bool:
        """Whether requests to the endpoint, or to one variant of it, name one of its model's
        containers."""
        found = self._endpoints.get(endpoint)
        variants = found.routes.variants if found is not None else ()
        meant = [one for one in variants if variant is None or one.name == variant]
        return all(one.direct for one in meant)

    def explain(self, request_id: str) -> dict[str, Any] | None:
        return self.ring.explain(request_id)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready state of all endpoints."""
        return {
            "in_flight": self.in_flight,
            "waiting": len(self._waiting),
            "stopping": self._stopping,
            "endpoints": {
                name: {
                    "in_flight": endpoint.in_flight,
                    "held": endpoint.held_count,
                    "router": endpoint.router.snapshot(),
                    "admission": endpoint.admission.snapshot(),
                }
                | ({} if endpoint.shadow is None else {"shadow": endpoint.shadow.snapshot()})
                for name, endpoint in sorted(self._endpoints.items())
            },
        }
