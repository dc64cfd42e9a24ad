"""The gateway in a run: admit, route, send; deadlines, disconnecting clients, retries.

It follows the live dispatcher step by step. `Admission` and `EndpointRouter` decide;
`core.request.retry` has the rules for requests that a copy gave back, and `core.request.holding`
those for requests that arrive while there is no copy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from penstock.config import LimitConfig
from penstock.core.blame.poison_requests import CONNECTION_LOST, FRESH, INSTANCE_SILENT, Past
from penstock.core.request import holding, retry
from penstock.core.request.admission import Admission, Refusal
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.waiting_lines import BLOCKS, GONE, STAYS, WaitingLines
from penstock.sim.copy import ARRIVAL, CLIENT_GONE, DEADLINES, HELD_RETRY, Event, SimulatedCopy
from penstock.sim.outcome import RunOutcome
from penstock.sim.outliers import TwinOutliers, TwinRebalancing
from penstock.sim.record import DecisionRecorder, admission_row, router_row
from penstock.sim.scenario import Scenario
from penstock.sim.workload import Arrival, Workload

_INF = float("inf")
_SWEEP_MIN = 1024
#: The limits of a server with default settings.
_LIMITS = LimitConfig()
_HOLD = holding.HoldSpec(
    count_max=_LIMITS.held_requests_max,
    bytes_max=_LIMITS.held_bytes_max,
    zero_capacity=_LIMITS.zero_capacity,
)


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """A request in flight."""

    number: int
    arrival: Arrival
    at: float
    deadline: float
    variant: str | None  #: the variant that took it, or that it waits for
    copy: CopyState | None = None  #: the copy whose slot it holds; None = none
    past: Past = FRESH
    failures: tuple[int, ...] = ()  #: copies that gave it back
    met: bool = False  #: whether a copy has received it
    streams: bool = False  #: whether a part of its answer has arrived
    ticket: int = 0  #: of its place in the queue that it waits in; 0 = it does not wait


class TwinGateway:
    """One endpoint in one gateway process."""

    def __init__(
        self,
        scenario: Scenario,
        seed: object,
        events: list[Event],
        recorder: DecisionRecorder,
        outcome: RunOutcome,
    ) -> None:
        routes = scenario.routes()
        self.router = EndpointRouter(routes, random.Random(f"{seed}/routing"))
        self.admission = Admission(scenario.admission_spec())
        self.workload = Workload(scenario.workload, seed, scenario.length_s)
        self.copies: dict[int, SimulatedCopy] = {}
        self.requests: dict[int, SimulatedRequest] = {}  #: requests in flight, by number
        self._closed_loop = scenario.workload.arrivals == "closed-loop"
        self._timeout_s = scenario.timeout_s
        copies = sum(len(variant.copies) for variant in routes.variants)
        self._rebalancing = TwinRebalancing(self.router, self.copies, self._moves)
        self.outliers = TwinOutliers(
            self.router,
            self.copies,
            events,
            take_back=self._take_all_back,
            give_back=self._given_back,
            let_back=self._let_back,
        )
        self._lanes = copies * scenario.lanes
        self._events = events
        self._recorder = recorder
        self._outcome = outcome
        self._variants = [variant.name for variant in routes.variants]
        self._waiting = WaitingLines[str, SimulatedRequest]()
        self._held_timer = False
        self._deadlines: list[tuple[float, int]] = []  #: (deadline, request), answered ones too
        self._deadlines_at = _INF
        self._sweep_at = _SWEEP_MIN

    # requests

    def on_arrival(self, now: float, _key: int, _epoch: int) -> None:
        arrival = self.workload.sample()
        self._outcome.requests = number = self._outcome.requests + 1
        deadline = now + self._timeout_s
        if arrival.deadline_s is not None:
            deadline = min(deadline, now + arrival.deadline_s)
        outstanding = len(self.requests) - self._newcomers()
        refusal = self.admission.admit(
            outstanding=outstanding, lanes=self._lanes, deadline=deadline, now=now
        )
        if refusal is not None and self._stands(refusal, arrival):
            self._recorder.add(admission_row(now, number, refusal))
            self._turned_away(f"admission: {refusal.reason}", now)
            return
        request = SimulatedRequest(number, arrival, now, deadline, arrival.variant)
        answer = None
        if not self._must_wait(request):
            prompt = self._prompt(number, arrival)
            answer = self.router.pick(variant=arrival.variant, prompt=prompt, now=now)
            self._recorder.add(router_row(now, number, answer))
        if not isinstance(answer, Routed) and not self._may_wait(request, answer, now):
            self._turned_away(f"router: {answer.reason if answer else 'others-wait'}", now)
            return
        self.requests[number] = request
        if arrival.cancel_after_s is not None:
            heappush(self._events, (now + arrival.cancel_after_s, CLIENT_GONE, number, 0))
        self._watch(deadline, number)
        if isinstance(answer, Routed):
            request.variant = answer.variant
            self._send(request, answer.state, now)
        else:
            self._wait(request, now)

    def _stands(self, refusal: Refusal, arrival: Arrival) -> bool:
        begins = self.router.may_begin(arrival.variant, None)
        return self.admission.stands(refusal, may_begin=begins)

    def _must_wait(self, request: SimulatedRequest) -> bool:
        """Whether other requests wait for the copies that it needs, and one of these copies
        exists."""
        line = self._waiting.line(self._line_of(request))
        return any(not one.met for one in line) and self.router.is_open(request.variant, None)

    def _newcomers(self) -> int:
        """The number of waiting requests that no copy has received yet."""
        return sum(not one.met for one in self._waiting.all())

    def _may_wait(self, request: SimulatedRequest, answer: NoRoute | None, now: float) -> bool:
        """`answer`: the router's; None where other requests wait already."""
        if answer is not None and answer.reason not in holding.NO_CAPACITY:
            return False
        step = holding.decide(
            _HOLD,
            zero_capacity="",
            others_wait=answer is None,
            held_count=self._newcomers(),
            held_bytes=0,  # a scenario's bodies have no size
            body_bytes=0,
            ready_in_s=None,
            deadline=request.deadline,
            now=now,
        )
        return step.do == holding.HOLD

    def _prompt(self, number: int, arrival: Arrival) -> bytes | None:
        return self.workload.prompt(number, arrival) if self.router.reads_prompts else None

    def _send(self, request: SimulatedRequest, state: CopyState, now: float) -> None:
        request.copy = state
        request.met = True
        # As in an INVOKE frame: whole milliseconds, rounded down, where 0 would mean none.
        left_ms = int((request.deadline - now) * 1000.0)
        deadline = now + (left_ms if left_ms > 0 else 1) / 1000
        self.copies[state.copy].accept(
            request.number, request.arrival, deadline, now, alone=request.past.alone
        )
        self.outliers.begin(now)

    def _turned_away(self, why: str, now: float) -> None:
        self._outcome.ends[why] += 1
        if self._closed_loop:
            self._come_again(now)

    def _answered(self, request: SimulatedRequest, now: float) -> None:
        if request.copy is not None and self.router.learns:
            self.router.answered(request.copy, now=now)
        self._end(request, now)

    def _end(self, request: SimulatedRequest, now: float) -> None:
        """Its last byte is written: it leaves the gateway."""
        del self.requests[request.number]
        if request.copy is not None:
            self.router.release(request.copy)
        if self._closed_loop:
            self._come_again(now)

    def _come_again(self, now: float) -> None:
        at = self.workload.again(now)
        if at is not None:
            heappush(self._events, (at, ARRIVAL, 0, 0))

    def on_client_gone(self, now: float, number: int, _epoch: int) -> None:
        request = self.requests.get(number)
        if request is not None:
            self._withdraw(request, now)
            self._outcome.cancelled += 1
            self._end(request, now)

    def _withdraw(self, request: SimulatedRequest, now: float) -> None:
        """Sends CANCEL to its copy, or removes it from the queue of held requests."""
        self._leave(request)
        if request.copy is not None:
            self.copies[request.copy.copy].cancel(request.number, now)

    # deadlines: one event for the earliest, as the dispatcher has one timer

    def _watch(self, deadline: float, number: int) -> None:
        heap = self._deadlines
        heappush(heap, (deadline, number))
        if deadline < self._deadlines_at:
            self._deadlines_at = deadline
            heappush(self._events, (deadline, DEADLINES, 0, 0))
        if len(heap) >= self._sweep_at:
            requests = self.requests
            heap[:] = [entry for entry in heap if entry[1] in requests]
            heapify(heap)
            self._sweep_at = 2 * len(heap) + _SWEEP_MIN

    def on_deadlines(self, now: float, _key: int, _epoch: int) -> None:
        if now != self._deadlines_at:
            return  # an earlier deadline was added since, with an event of its own
        heap, requests = self._deadlines, self.requests
        self._deadlines_at = _INF
        while heap and (heap[0][1] not in requests or now >= heap[0][0]):
            request = requests.get(heappop(heap)[1])
            if request is not None:
                self._withdraw(request, now)
                if request.copy is not None:
                    request.copy.missed += 1
                why = "deadline-passed" if request.met else "no-capacity-in-time"
                self._give_up(request, f"gateway: {why}", now)
        if heap and heap[0][0] < self._deadlines_at:
            self._deadlines_at = heap[0][0]
            heappush(self._events, (heap[0][0], DEADLINES, 0, 0))

    def _give_up(self, request: SimulatedRequest, why: str, now: float) -> None:
        self._outcome.ends[why] += 1
        self._end(request, now)

    # reports of copies

    def answered(self, numbers: tuple[int, ...], run_us: int, rows: int, now: float) -> None:
        """A batch has ended. Requests with a gone client or a passed deadline are skipped."""
        requests, outcome = self.requests, self._outcome
        latencies_s = outcome.latencies_s
        observe, level_max = self.admission.observe, len(latencies_s) - 1
        for number in numbers:
            request = requests.get(number)
            if request is not None:
                self._heard(request, 0.0 if request.failures else now - request.at)
                observe(run_us, rows, run_us * request.arrival.rows // rows, request.at)
                level = request.arrival.priority
                latencies_s[level if level < level_max else level_max].append(now - request.at)
                outcome.events += 1
                outcome.answered_at = now
                self._answered(request, now)

    def first_token(self, number: int, now: float) -> None:
        """Receives the first CHUNK frame of an answer."""
        request = self.requests.get(number)
        if request is not None:
            request.streams = True
            self._heard(request)
            self._outcome.first_token_s.append(now - request.at)

    def heard(self, copy: int) -> None:
        """Receives tokens of answers that have begun."""
        state = self.router.state_of(copy)
        if state is not None:
            state.heard()
            self.outliers.heard[state.instance_id] += 1

    def _heard(self, request: SimulatedRequest, took_s: float = 0.0) -> None:
        if request.copy is not None:
            request.copy.heard(took_s)
            self.outliers.heard[request.copy.instance_id] += 1

    def streamed(self, number: int, run_us: int, now: float) -> None:
        """Receives an END frame."""
        request, outcome = self.requests.get(number), self._outcome
        if request is not None:
            self._heard(request)
            self.admission.observe(run_us, 1, run_us, request.at)
            level = min(request.arrival.priority, len(outcome.latencies_s) - 1)
            outcome.latencies_s[level].append(now - request.at)
            outcome.tokens += request.arrival.answer_tokens
            outcome.events += 1
            outcome.answered_at = now
            self._answered(request, now)

    def broken(self, number: int, now: float) -> None:
        """Receives an ERROR frame after the first CHUNK: the sent part can't be taken back."""
        request = self.requests.get(number)
        if request is not None:
            self._give_up(request, "copy: stream-broken", now)

    def not_run(self, number: int, reason: str, now: float) -> None:
        """The batcher refused it or let it expire."""
        request = self.requests.get(number)
        if request is not None:
            if request.copy is not None:
                request.copy.missed += reason == "deadline-passed"
                self.outliers.heard[request.copy.instance_id] += 1
            self._give_up(request, f"batcher: {reason}", now)

    def returned(self, numbers: tuple[int, ...], reason: str, now: float) -> None:
        """Requests without an answer or any visible result: they go to another copy, or are
        held."""
        for number in numbers:
            request = self.requests.get(number)
            if request is not None:
                if request.copy is not None:
                    self.outliers.heard[request.copy.instance_id] += 1
                request.past = request.past.after(reason)
                self._take_back(request, now)

    def copy_lost(self, copy: int) -> None:
        self.router.set_healthy(copy, False)

    def connection_lost(self, copy: int, now: float) -> None:
        """Its instance has ended, with all its requests."""
        self.outliers.hung.discard(copy)
        self.router.set_healthy(copy, False)
        for request in self._on(copy):
            if request.streams:
                self._give_up(request, "copy: stream-broken", now)
            else:
                request.past = request.past.after(CONNECTION_LOST)
                self._take_back(request, now)

    def _on(self, copy: int) -> list[SimulatedRequest]:
        """The requests of a copy, oldest first."""
        found = self.requests.values()
        return [one for one in found if one.copy is not None and one.copy.copy == copy]

    # outliers

    def on_outlier_look(self, now: float, _key: int, _epoch: int) -> None:
        self.outliers.look(now)

    def _take_all_back(self, state: CopyState, now: float) -> None:
        for request in self._on(state.copy):
            if not request.streams:
                self.copies[state.copy].cancel(request.number, now)
                request.past = request.past.after(INSTANCE_SILENT)
                self._take_back(request, now)

    def _given_back(self, numbers: list[int], now: float) -> None:
        self.returned(tuple(numbers), retry.REBALANCED, now)

    def _let_back(self, copy: int, now: float) -> None:
        self._try_held(now)
        self._rebalancing.copy_well(copy, now)

    def copy_ready(self, copy: int, now: float) -> None:
        self.router.set_healthy(copy, True)
        self._let_back(copy, now)

    # retries

    def _take_back(self, request: SimulatedRequest, now: float) -> None:
        state = request.copy
        assert state is not None, f"request {request.number} came back from nowhere"
        request.copy = None
        self.router.release(state)
        if state.copy not in request.failures:
            request.failures += (state.copy,)
        step = retry.when_returned(request.past)
        if step.do != "route":
            self._give_up(request, f"gateway: {step.reason}", now)
        elif self._route_again(request, now, was_held=False) != GONE:
            self._hold(request, now)

    def _moves(self, number: int, copy: int, now: float) -> None:
        """A request left the queue of a copy; it goes to another one if that has room."""
        request = self.requests[number]
        assert request.copy is not None, f"request {number} left a queue that it was not in"
        self.router.release(request.copy)
        request.copy = None
        if self._route_again(request, now, was_held=False, leaves=(copy,)) != GONE:
            self._hold(request, now)

    def _pick(
        self, request: SimulatedRequest, exclude: tuple[int, ...], now: float
    ) -> Routed | NoRoute:
        prompt = self._prompt(request.number, request.arrival)
        answer = self.router.pick(variant=request.variant, exclude=exclude, prompt=prompt, now=now)
        self._recorder.add(router_row(now, request.number, answer))
        return answer

    def _route_again(
        self, request: SimulatedRequest, now: float, *, was_held: bool, leaves: tuple[int, ...] = ()
    ) -> str:
        """Whether it is on its way, and if not, whether others in its queue may be.

        (No variants are removed in a run, and there are no sessions.)
        """
        failures = request.failures
        answer = self._pick(request, failures + leaves, now)
        step = retry.when_picked(answer, failures=failures, was_held=was_held, moves=bool(leaves))
        if step.do == "route-any-copy":
            answer = self._pick(request, failures, now)
            step = retry.when_picked(answer, failures=failures, was_held=was_held)
        if isinstance(answer, NoRoute):
            return BLOCKS
        if step.releases:
            self.router.release(answer.state)
            return STAYS
        # a request that only moved was not tried
        self._outcome.retries += request.met and not leaves
        self._leave(request)
        request.variant = answer.variant
        self._send(request, answer.state, now)
        return GONE

    # waiting requests, as in gateway/dispatch/waiting.py

    def _line_of(self, request: SimulatedRequest) -> str:
        only = self._variants[0] if len(self._variants) == 1 else ""
        return request.variant or only

    def _hold(self, request: SimulatedRequest, now: float) -> None:
        if retry.when_held(held=len(self._waiting)).do == "give-up":
            self._give_up(request, "gateway: given-up", now)
            return
        self._wait(request, now)

    def _wait(self, request: SimulatedRequest, now: float) -> None:
        request.ticket = self._waiting.add(request, self._line_of(request))
        self._set_held_timer(now)

    def _leave(self, request: SimulatedRequest) -> None:
        """Removes it from its queue. Without effect if it does not wait."""
        if request.ticket:
            self._waiting.remove(request.ticket)
            request.ticket = 0

    def _set_held_timer(self, now: float) -> None:
        if not self._held_timer:
            self._held_timer = True
            heappush(self._events, (retry.next_retry(now=now), HELD_RETRY, 0, 0))

    def _try_held(self, now: float) -> None:
        self._waiting.look(lambda _, request: self._route_again(request, now, was_held=True))

    def on_held_retry(self, now: float, _key: int, _epoch: int) -> None:
        self._held_timer = False
        self._try_held(now)
        if len(self._waiting):
            self._set_held_timer(now)
