"""The live drivers under a fake clock: a scenario run by `Dispatcher`, `Copy` and `BatcherDriver`.

What is real: the dispatcher with its deadlines and retries, the copies with their batcher drivers,
and the frames between them. What is not: time, sockets (frames arrive within the moment), and the
model (its lanes take as long as the twin's service times say). Every decision is recorded in the
twin's format, so that the two lists can be compared.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from penstock.config import LimitConfig
from penstock.core.batching.batcher import Action, RunBatch
from penstock.core.batching.generation_steps import EngineModel
from penstock.core.blame.poison_requests import reason_of_death
from penstock.core.request.admission import Admission, Refusal
from penstock.core.routing import EndpointRouter, NoRoute, Routed
from penstock.errors import ModelError, PenstockError
from penstock.gateway.dispatch.deadlines import Deadlines
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import ANSWERED, SENT, STREAMING, Invocation
from penstock.gateway.dispatch.link import LinkEvents
from penstock.gateway.dispatch.outliers import OutlierWatch
from penstock.instance.codecs.base import Decoded
from penstock.instance.copy import Copy
from penstock.instance.engines.batches import Batches
from penstock.instance.request import Item, Request
from penstock.sim import copy as kinds
from penstock.sim.copy import engine_noise
from penstock.sim.record import DecisionRecorder, admission_row, batcher_row, router_row
from penstock.sim.scenario import COPY_HUNG, Scenario, WorkerDeath
from penstock.sim.workload import Arrival, ServiceTimes, Workload
from penstock.wire import frames

_BODY = struct.Struct("<II")  #: rows, length
_META = struct.Struct("<IIII")  #: of a prompt: length, answer_tokens, prefix, prefix_tokens


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTime:
    """A clock that jumps from event to event; events of one moment in the twin's order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, int, Callable[[], None], Handle]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def at(self, when: float, kind: int, key: int, callback: Callable[[], None]) -> Handle:
        handle = Handle()
        self._count += 1
        entry = (max(when, self.now), kind, key, self._count, callback, handle)
        heapq.heappush(self._heap, entry)
        return handle

    def next_event(self) -> Callable[[], None] | None:
        """Moves time to the next event and returns it; None: there are no more."""
        while self._heap:
            at, _, _, _, callback, handle = heapq.heappop(self._heap)
            if not handle.cancelled:
                self.now = at
                return callback
        return None


class GatewayTimers:
    """The dispatcher's timers: of deadlines, of held requests, of looks for outliers."""

    def __init__(self, time: FakeTime) -> None:
        self._time = time

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        owner = getattr(callback, "__self__", None)
        kind = kinds.DEADLINES if isinstance(owner, Deadlines) else kinds.HELD_RETRY
        kind = kinds.OUTLIER_LOOK if isinstance(owner, OutlierWatch) else kind
        return self._time.at(when, kind, 0, callback)

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self._time.at(self._time.now, kinds.FAULT, 0, callback)


class RecordedRouter(EndpointRouter):
    __slots__ = ("live",)
    live: LiveRun

    def pick(self, **asked: Any) -> Routed | NoRoute:
        answer = super().pick(**asked)
        self.live.recorder.add(router_row(self.live.time.now, self.live.number, answer))
        return answer


class RecordedAdmission(Admission):
    __slots__ = ("live",)
    live: LiveRun

    def stands(self, refusal: Refusal, *, may_begin: bool) -> bool:
        stands = super().stands(refusal, may_begin=may_begin)
        if stands:
            self.live.recorder.add(admission_row(self.live.time.now, self.live.number, refusal))
        return stands


def name_retries(live: LiveRun, dispatcher: Dispatcher) -> None:
    """Tells for which request it routes again: decisions alone do not name it."""
    route_again = dispatcher._route_again

    def named(invocation: Invocation, **how: Any) -> str:
        live.number = invocation.number
        return route_again(invocation, **how)

    dispatcher._route_again = named  # type: ignore[method-assign]


class LiveEngine:
    """A model whose lanes take as long as the scenario says."""

    def __init__(self, live: LiveRun, number: int) -> None:
        self._live = live
        self._number = number
        self.running: dict[int, tuple[Handle, Callable[[Any], None]]] = {}
        self.ahead: dict[int, tuple[float, int, Callable[[Any], None]]] = {}

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        rows, length = _BODY.unpack(body)
        return Decoded({}, rows, lambda outputs: (b"ok", b"")), None, length

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        live = self._live
        run_s = live.service.run_s(sum(item.rows for item in items), bucket)
        run_s /= live.speeds[self._number]
        if lane in self.running:
            self.ahead[lane] = (run_s, len(items), done)
        else:
            self._begin(lane, run_s, len(items), done)

    def _begin(self, lane: int, run_s: float, count: int, done: Callable[[Any], None]) -> None:
        """As a lane's thread: what is ahead begins before anybody hears of the end."""
        live = self._live
        key = self._number * live.scenario.batching.lanes + lane

        def over() -> None:
            del self.running[lane]
            if lane in self.ahead:
                self._begin(lane, *self.ahead.pop(lane))
            done([{}] * count)

        handle = live.time.at(live.time.now + run_s, kinds.LANE_DONE, key, over)
        self.running[lane] = (handle, done)


class Replies:
    """The copy's way back to the gateway: frames arrive once the present event is over."""

    def __init__(self, live: LiveRun, link: InstanceLink) -> None:
        self._live = live
        self._link = link

    def forget(self, ident: int) -> None:
        self._link.requests.pop(ident, None)

    def send(self, frame: bytes) -> None:
        self._live.later(lambda: self._link.deliver(frame))


class InstanceLink:
    """A `Link` to an instance of one copy, and that instance."""

    paused = False

    def __init__(self, live: LiveRun, number: int, events: LinkEvents) -> None:
        self.usable = False
        self.heard = 0
        self.hangs = False
        self._live = live
        self._number = number
        self._events = events
        self._ident = 0
        self._pending: dict[int, Invocation] = {}
        self.requests: dict[int, Request] = {}
        self._replies = Replies(live, self)
        self._decoder = frames.FrameDecoder()
        self._start()

    def _start(self) -> None:
        live, number = self._live, self._number
        self._queued: list[int] = []  #: request numbers by the driver's ids, which count from 1
        self.engine = LiveEngine(live, number)
        self.copy = Copy(
            number,
            Batches(self.engine),
            live.scenario.batching,
            clock=live.time,
            call_at=lambda when, callback: live.time.at(
                when, kinds.BATCHER_TIMER, number, callback
            ),
            on_state=self._tell_state,
            observe=self._observe,
        )

    # Link

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        assert copy == self._number
        self._ident = ident = self._ident + 1
        invocation.ident = ident
        self._pending[ident] = invocation
        if self.hangs:
            return  # nobody reads it
        frame = frames.encode_invoke(
            ident, copy, deadline_ms, invocation.priority, invocation.meta, invocation.body,
            flags=frames.ALONE if invocation.past.alone else 0,
        )  # fmt: skip
        (received,) = self._decoder.feed(frame)
        wanted = frames.decode_invoke(received.payload, received.meta_bytes)
        now = self._live.time.now
        request = Request(
            self._replies, ident, wanted.meta, wanted.body, now, now + wanted.deadline_ms / 1000,
            wanted.priority, bool(received.flags & frames.ALONE),
        )  # fmt: skip
        self.requests[ident] = request
        self._queued.append(invocation.number)
        self.copy.accept(request, now)
        # The instance turns once all frames of a read are added: all arrivals of this moment.
        self._live.time.at(
            now, kinds.BATCHER_TIMER, self._number, lambda: self.copy.driver.turn(now)
        )

    def cancel(self, invocation: Invocation) -> None:
        if self._pending.pop(invocation.ident, None) is not None and not self.hangs:
            self.copy.cancel(self.requests[invocation.ident])

    def take_back(self, copy: int) -> list[Invocation]:
        taken = [one for one in self._pending.values() if one.state == SENT]
        for invocation in taken:
            self.cancel(invocation)
        return taken

    def tell(self, call: dict[str, Any]) -> None:
        if self.hangs:
            return
        if call["op"] == "ping":
            self.heard += 1
            return
        assert call["op"] == "give-back"

        def ask() -> None:
            given = self.copy.give_back_waiting(call["count"], self._replies)
            self._live.later(lambda: gave_back(self._events, self._number, given))

        self._live.later(ask)

    async def open(self, timeout_s: float) -> None:
        self.usable = True
        self._events.on_usable(f"i-{self._number}", fresh=True)

    async def close(self) -> None:
        self.usable = False

    def deliver(self, frame: bytes) -> None:
        for kind, _, meta_bytes, ident, payload in frames.FrameDecoder().feed(frame):
            invocation = self._pending.pop(ident, None)
            if invocation is None:
                continue
            self.heard += 1
            if kind == frames.REPLY:
                self._events.on_reply(invocation, frames.decode_reply(payload, meta_bytes))
            elif kind == frames.ERROR:
                self._events.on_error(invocation, frames.decode_reply(payload, meta_bytes))
            else:
                assert kind == frames.RETURNED
                self._events.on_returned(invocation, payload.decode())

    # the copy's own

    def die(self) -> None:
        """The workers of its lanes are found dead one by one, as `WorkerProcess` tells it."""
        error = ModelError("worker-died", "killed")
        for lane in range(self._live.scenario.batching.lanes):
            self.copy.lane_lost(lane, error)
            running = self.engine.running.pop(lane, None)
            if running is not None:
                running[0].cancel()
                running[1](None)

    def hang(self) -> None:
        """The instance is stopped: nothing of it ends any more."""
        self.hangs = True
        for handle, _ in self.engine.running.values():
            handle.cancel()
        self.copy.driver.close()

    def go_on(self) -> None:
        """It was ended, and another is there in its place."""
        self.hangs = False
        self._start()
        unanswered, self._pending = list(self._pending.values()), {}
        self._events.on_unusable(f"i-{self._number}", unanswered)
        self._events.on_usable(f"i-{self._number}", fresh=True)

    def come_back(self) -> None:
        for lane in range(self._live.scenario.batching.lanes):
            self.copy.lane_ready(lane)

    def _tell_state(self, event: str, error: PenstockError | None) -> None:
        news = {"event": event, "copy": self._number}
        self._live.later(lambda: self._events.on_event(f"i-{self._number}", news))

    def _observe(self, actions: list[Action]) -> None:
        now = self._live.time.now
        for action in actions:
            if isinstance(action, RunBatch):
                ids = tuple(self._queued[ident - 1] for ident in action.ids)
                named: Action = dataclasses.replace(action, ids=ids)
            else:
                named = dataclasses.replace(action, id=self._queued[action.id - 1])
            self._live.recorder.add(batcher_row(now, self._number, named))


def gave_back(events: LinkEvents, copy: int, count: int) -> None:
    """The instance's last word to a question for what waits."""
    events.on_event(f"i-{copy}", {"event": "gave-back", "copy": copy, "count": count})


class GeneratingLink:
    """A `Link` to an instance of one copy that generates; the engine is the twin's model of one."""

    paused = False

    def __init__(self, live: LiveRun, number: int, events: LinkEvents, engine: EngineModel) -> None:
        self.usable = False
        self.heard = 0
        self._live = live
        self._number = number
        self._events = events
        self._engine = engine
        self._pending: dict[int, Invocation] = {}
        self._step: Handle | None = None
        self._begun: dict[int, float] = {}  #: since when each sequence has its slot

    # Link

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        assert copy == self._number
        invocation.ident = invocation.number
        self._pending[invocation.number] = invocation
        length, answer_tokens, prefix, prefix_tokens = _META.unpack(invocation.meta)
        arrival = Arrival(
            1, length, 0, None, None, None, answer_tokens, prefix, prefix_tokens
        )  # fmt: skip
        self._engine.add(invocation.number, arrival)
        if self._step is None:
            self._begin_step()

    def cancel(self, invocation: Invocation) -> None:
        if self._pending.pop(invocation.ident, None) is not None:
            self._engine.cancel(invocation.ident)

    def take_back(self, copy: int) -> list[Invocation]:
        taken = [one for one in self._pending.values() if one.state == SENT]
        for invocation in taken:
            self.cancel(invocation)
        return taken

    def tell(self, call: dict[str, Any]) -> None:
        if call["op"] == "ping":
            self.heard += 1
            return
        assert call["op"] == "give-back"

        def ask() -> None:
            given = self._engine.give_back(call["count"])
            self._live.later(lambda: give_back(given))

        def give_back(given: list[int]) -> None:
            for number in given:
                self._events.on_returned(self._pending.pop(number), "rebalanced")
            gave_back(self._events, self._number, len(given))

        self._live.later(ask)

    async def open(self, timeout_s: float) -> None:
        self.usable = True
        self._events.on_usable(f"i-{self._number}", fresh=True)

    async def close(self) -> None:
        self.usable = False

    # the engine's own

    def _begin_step(self) -> None:
        step_s = self._engine.begin_step()
        self._step = None
        if step_s is not None:
            time = self._live.time
            self._step = time.at(time.now + step_s, kinds.LANE_DONE, self._number, self._step_over)
            self._begun.update((number, time.now) for number, _ in self._engine.joining())

    def _step_over(self) -> None:
        firsts, done = self._engine.end_step()
        for number in firsts:
            if number in self._pending:
                self._events.on_chunk(self._pending[number], b"token", b"")
        self.heard += bool(firsts or done)
        for invocation in self._pending.values():  # each has another token with each step
            if invocation.state == STREAMING and invocation.number not in done:
                self.heard += 1
                if invocation.copy is not None:
                    invocation.copy.heard()
                break
        for number in done:
            invocation = self._pending.pop(number, None)
            if invocation is not None:
                run_us = int((self._live.time.now - self._begun[number]) * 1e6)
                reply = frames.Reply(200, 1, 0, 0, 0, run_us, run_us, b"", b"")
                self._events.on_end(invocation, reply)
        self._begin_step()

    def die(self) -> None:
        """What an instance sends when it finds its engine dead."""
        if self._step is not None:
            self._step.cancel()
            self._step = None
        begun, not_begun = self._engine.die()
        error = orjson.dumps(ModelError("stream-broken", "killed").to_dict())
        for number in begun:
            broken = frames.Reply(424, 1, 0, 0, 0, 0, 0, b"", error)
            self._events.on_error(self._pending.pop(number), broken)
        for number in not_begun:
            reason = reason_of_death(len(begun) + len(not_begun) - 1)
            self._events.on_returned(self._pending.pop(number), reason)
        self._tell("copy-lost")

    def come_back(self) -> None:
        self._tell("copy-ready")

    def _tell(self, event: str) -> None:
        self._events.on_event(f"i-{self._number}", {"event": event, "copy": self._number})


class LiveRun:
    """One run of a scenario; also every request's responder."""

    def __init__(self, scenario: Scenario) -> None:
        seed = scenario.seed
        self.scenario = scenario
        self.time = FakeTime()
        self.recorder = DecisionRecorder(keep=True)
        self.service = ServiceTimes(scenario.service, seed)
        self.speeds = scenario.speeds()
        self.number = 0  #: the request that the present decision is about
        self.latencies_s: list[float] = []  #: of answers, in their order
        self.first_token_s: list[float] = []
        self.cancelled = 0
        self.requests = 0
        self._workload = Workload(scenario.workload, seed, scenario.length_s)
        self._later: list[Callable[[], None]] = []
        self._links: dict[int, InstanceLink | GeneratingLink] = {}
        rng = random.Random(f"{seed}/routing")
        self.dispatcher = Dispatcher(
            clock=self.time,
            timers=GatewayTimers(self.time),
            rng=rng,
            limits=LimitConfig(request_timeout_s=scenario.timeout_s),
            link_factory=self._link,
        )
        name_retries(self, self.dispatcher)
        routes = scenario.routes()
        self.dispatcher.publish(routes)
        endpoint = self.dispatcher.table.endpoints[scenario.name]
        endpoint.router = router = RecordedRouter(routes, rng)
        endpoint.admission = admission = RecordedAdmission(scenario.admission_spec())
        router.live = admission.live = self
        asyncio.run(self._connect())

    async def _connect(self) -> None:
        for variant in self.scenario.routes().variants:
            for route in variant.copies:
                await self.dispatcher.connect(route.instance_id, str(route.copy))

    def _link(
        self, instance_id: str, address: str, events: LinkEvents
    ) -> InstanceLink | GeneratingLink:
        number, spec = int(address), self.scenario.generation
        link: InstanceLink | GeneratingLink
        if spec is not None:
            engine = EngineModel(spec, engine_noise(self.scenario.seed, number))
            link = GeneratingLink(self, number, events, engine)
        else:
            link = InstanceLink(self, number, events)
        self._links[number] = link
        return link

    def later(self, callback: Callable[[], None]) -> None:
        """Once the present event is over, in the same moment."""
        self._later.append(callback)

    def run(self) -> None:
        """From the first arrival until nothing is in flight."""
        for number, fault in enumerate(self.scenario.faults):
            self._plan_fault(fault, number)
        for at in self._workload.first():
            self.time.at(at, kinds.ARRIVAL, 0, self._arrive)
        arrivals = self._workload.open()
        self._plan_arrival(arrivals)
        while (event := self.time.next_event()) is not None:
            event()
            while self._later:
                waiting, self._later = self._later, []
                for callback in waiting:
                    callback()
        assert self.dispatcher.in_flight == 0

    def _plan_arrival(self, arrivals: Iterator[float]) -> None:
        at = next(arrivals, None)
        if at is not None:

            def arrive() -> None:
                self._plan_arrival(arrivals)
                self._arrive()

            self.time.at(at, kinds.ARRIVAL, 0, arrive)

    def _plan_fault(self, fault: WorkerDeath, number: int) -> None:
        link = self._links[fault.copy]

        end, begin = link.die, link.come_back
        if fault.kind == COPY_HUNG:
            assert isinstance(link, InstanceLink)
            end, begin = link.hang, link.go_on

        def happen() -> None:
            back_at = self.time.now + fault.back_after_s
            self.time.at(back_at, kinds.FAULT, 2 * number + 1, begin)
            end()

        self.time.at(fault.at_s, kinds.FAULT, 2 * number, happen)

    def _arrive(self) -> None:
        arrival = self._workload.sample()
        now = self.time.now
        self.requests += 1
        self.number = self.requests
        meta, body = b"", _BODY.pack(arrival.rows, arrival.length)
        if self.scenario.generation is not None:
            body = self._workload.prompt(self.number, arrival)
            meta = _META.pack(
                arrival.length, arrival.answer_tokens, arrival.prefix, arrival.prefix_tokens
            )
        invocation = Invocation(
            self.scenario.name,
            meta,
            body,
            self,
            received=now,
            deadline=None if arrival.deadline_s is None else now + arrival.deadline_s,
            variant=arrival.variant,
            priority=arrival.priority,
            number=self.number,
        )
        self.dispatcher.invoke(invocation)
        if arrival.cancel_after_s is not None and invocation.state < ANSWERED:
            at = now + arrival.cancel_after_s
            self.time.at(at, kinds.CLIENT_GONE, self.number, lambda: self._client_gone(invocation))

    def _client_gone(self, invocation: Invocation) -> None:
        if invocation.state < ANSWERED:
            self.dispatcher.cancel(invocation)
            self.cancelled += 1
            self._ended()

    def _ended(self) -> None:
        at = self._workload.again(self.time.now)
        if at is not None:
            self.time.at(at, kinds.ARRIVAL, 0, self._arrive)

    # Responder

    def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
        self.latencies_s.append(self.time.now - invocation.received)
        self.dispatcher.written(invocation)
        self._ended()

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        self.dispatcher.written(invocation)
        self._ended()

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        self.first_token_s.append(self.time.now - invocation.received)

    def on_end(self, invocation: Invocation, reply: frames.Reply) -> None:
        self.on_reply(invocation, reply)
