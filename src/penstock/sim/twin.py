"""One endpoint under virtual time: an event heap around the classes that decide live.

The twin does what the live drivers do, in the same order, without sockets or threads: the gateway
admits, routes and sends; a copy queues, batches and answers; a timer fires exactly at its moment.
Frames take no time. Rules that make a run repeatable, and equal to the live drivers under a fake
clock (`tests/drivers/`):

* Events at the same moment happen by kind, in the order of the constants below, then by key. So all
  arrivals of one moment are fed to a batcher before its timer runs: they are one socket read.
* A deadline crosses the wire in whole milliseconds, rounded down, as in an INVOKE frame.
* A copy dies lane by lane: what the first lanes ran comes back, then what was queued, oldest first,
  then the news that the copy is lost, then what the last lane ran.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from penstock.core.admission import Admission
from penstock.core.batching import Action, Batcher, RunBatch
from penstock.core.routing import CopyState, EndpointRouter, NoRoute
from penstock.sim.faults import Fault
from penstock.sim.outcome import Outcome
from penstock.sim.record import Recorder, admission_row, batcher_row, router_row
from penstock.sim.scenario import Scenario
from penstock.sim.service import ServiceTimes
from penstock.sim.workload import Arrival, Workload

# Kinds of events, in their order at one moment; what the key is.
FAULT: Final = 0  #: twice its number in the scenario, plus 1 for the recovery
LANE_DONE: Final = 1  #: copy * lanes + lane
ARRIVAL: Final = 2  #: 0; what it is like is drawn when it comes
CLIENT_GONE: Final = 3  #: request
BATCHER_TIMER: Final = 4  #: copy
DEADLINES: Final = 5  #: 0
HELD_RETRY: Final = 6  #: 0

#: The gateway's rules for requests that a copy gave back.
ATTEMPTS_MAX: Final = 4
HELD_MAX: Final = 8192
HELD_RETRY_S: Final = 0.05

_INF = float("inf")
_SWEEP_MIN = 1024


class Request:
    """A request in flight."""

    __slots__ = (
        "arrival", "at", "attempts", "copy", "deadline", "failures", "held", "number", "variant",
    )  # fmt: skip

    def __init__(self, number: int, arrival: Arrival, at: float, deadline: float) -> None:
        self.number = number
        self.arrival = arrival
        self.at = at
        self.deadline = deadline
        self.variant = arrival.variant
        self.copy: CopyState | None = None  #: whose slot it holds
        self.attempts = 0
        self.failures: tuple[int, ...] = ()
        self.held = False


class Copy:
    """The instance's side of one copy."""

    __slots__ = ("batcher", "epoch", "lanes", "number", "timer_at")

    def __init__(self, number: int, scenario: Scenario) -> None:
        self.number = number
        self.batcher = Batcher(scenario.batching)
        self.lanes: list[tuple[RunBatch, float] | None] = [None] * scenario.batching.lanes
        self.epoch = 0  #: deaths so far: what an earlier worker ran is never done
        self.timer_at = _INF


class Twin:
    """One run of a scenario."""

    def __init__(
        self, scenario: Scenario, *, seed: int | None = None, recorder: Recorder | None = None
    ) -> None:
        seed = scenario.seed if seed is None else seed
        routes = scenario.routes()
        self.outcome = Outcome(scenario.batching.priorities)
        self.recorder = recorder or Recorder()
        self.router = EndpointRouter(routes, random.Random(f"{seed}/routing"))
        self.admission = Admission(scenario.admission)
        self.copies = {
            route.copy: Copy(route.copy, scenario)
            for variant in routes.variants
            for route in variant.copies
        }
        self._scenario = scenario
        self._lanes = scenario.batching.lanes
        self._lanes_total = len(self.copies) * self._lanes
        self._workload = Workload(scenario.workload, seed, scenario.length_s)
        self._closed_loop = scenario.workload.arrivals == "closed-loop"
        self._service = ServiceTimes(scenario.service, seed)
        self._heap: list[tuple[float, int, int, int]] = []  #: at, kind, key, epoch
        self._requests: dict[int, Request] = {}  #: in flight, by number
        self._held: list[Request] = []
        self._held_timer = False
        self._deadlines: list[tuple[float, int]] = []  #: (deadline, request), some answered already
        self._deadlines_at = _INF
        self._sweep_at = _SWEEP_MIN
        self._number = 0

    def run(self) -> Outcome:
        """From the first arrival until nothing is in flight."""
        heap = self._heap
        for number, fault in enumerate(self._scenario.faults):
            heappush(heap, (fault.at_s, FAULT, 2 * number, 0))
        for at in self._workload.first():
            heappush(heap, (at, ARRIVAL, 0, 0))
        handlers = (
            self._on_fault, self._on_lane_done, self._on_arrival, self._on_client_gone,
            self._on_batcher_timer, self._on_deadlines, self._on_held_retry,
        )  # fmt: skip
        collecting = gc.isenabled()
        gc.disable()  # nothing here makes cycles; traversing what is kept costs a fifth of the run
        try:
            handled = self._loop(handlers)
        finally:
            if collecting:
                gc.enable()
        self.outcome.events += handled
        assert not self._requests, f"{len(self._requests)} requests never ended"
        return self.outcome

    def _loop(self, handlers: tuple[Callable[[float, int, int], None], ...]) -> int:
        """Handles events in their order until there are none; returns how many."""
        heap = self._heap
        arrivals: Iterator[float] = self._workload.open()
        next_at = next(arrivals, _INF)
        events = 0
        while heap or next_at < _INF:
            events += 1
            if (
                not heap
                or next_at < heap[0][0]
                or (next_at == heap[0][0] and heap[0][1] >= ARRIVAL)
            ):
                self._on_arrival(next_at, 0, 0)
                next_at = next(arrivals, _INF)
            else:
                at, kind, key, epoch = heappop(heap)
                handlers[kind](at, key, epoch)
        return events

    # the gateway

    def _on_arrival(self, now: float, _key: int, _epoch: int) -> None:
        arrival = self._workload.sample()
        self._number = number = self._number + 1
        self.outcome.requests += 1
        deadline = now + self._scenario.timeout_s
        if arrival.deadline_s is not None:
            deadline = min(deadline, now + arrival.deadline_s)
        refusal = self.admission.admit(
            outstanding=len(self._requests), lanes=self._lanes_total, deadline=deadline, now=now
        )
        if refusal is not None:
            self.recorder.add(admission_row(now, number, refusal))
            self._turned_away(f"admission: {refusal.reason}", now)
            return
        answer = self.router.pick(variant=arrival.variant)
        self.recorder.add(router_row(now, number, answer))
        if isinstance(answer, NoRoute):
            self._turned_away(f"router: {answer.reason}", now)
            return
        request = Request(number, arrival, now, deadline)
        self._requests[number] = request
        request.variant = answer.variant
        if arrival.cancel_after_s is not None:
            heappush(self._heap, (now + arrival.cancel_after_s, CLIENT_GONE, number, 0))
        self._watch(deadline, number)
        self._send(request, answer.state, now)

    def _send(self, request: Request, state: CopyState, now: float) -> None:
        request.copy = state
        request.attempts += 1
        copy = self.copies[state.copy]
        arrival = request.arrival
        left_ms = int((request.deadline - now) * 1000.0)
        actions = copy.batcher.add(
            request.number,
            rows=arrival.rows,
            length=arrival.length,
            priority=arrival.priority,
            deadline=now + (left_ms if left_ms > 0 else 1) / 1000.0,
            now=now,
        )
        if actions:
            self._carry_out(copy, actions, now)
        self._arm(copy, now)

    def _turned_away(self, why: str, now: float) -> None:
        self.outcome.ends[why] += 1
        if self._closed_loop:
            self._send_again_later(now)

    def _end(self, request: Request, now: float) -> None:
        """Its last byte is written."""
        del self._requests[request.number]
        if request.copy is not None:
            self.router.release(request.copy)
        if self._closed_loop:
            self._send_again_later(now)

    def _send_again_later(self, now: float) -> None:
        """In a closed loop an answered client comes again."""
        at = self._workload.again(now)
        if at is not None:
            heappush(self._heap, (at, ARRIVAL, 0, 0))

    def _watch(self, deadline: float, number: int) -> None:
        heap = self._deadlines
        heappush(heap, (deadline, number))
        if deadline < self._deadlines_at:
            self._deadlines_at = deadline
            heappush(self._heap, (deadline, DEADLINES, 0, 0))
        if len(heap) >= self._sweep_at:
            requests = self._requests
            heap[:] = [entry for entry in heap if entry[1] in requests]
            heapify(heap)
            self._sweep_at = 2 * len(heap) + _SWEEP_MIN

    def _on_deadlines(self, now: float, _key: int, _epoch: int) -> None:
        if now != self._deadlines_at:
            return  # an earlier deadline came meanwhile and had an event of its own
        heap, requests = self._deadlines, self._requests
        self._deadlines_at = _INF
        while heap and (heap[0][1] not in requests or now >= heap[0][0]):
            request = requests.get(heappop(heap)[1])
            if request is not None:
                self._withdraw(request, now)
                self.outcome.ends["gateway: deadline-passed"] += 1
                self._end(request, now)
        if heap:
            self._deadlines_at = heap[0][0]
            heappush(self._heap, (heap[0][0], DEADLINES, 0, 0))

    def _on_client_gone(self, now: float, number: int, _epoch: int) -> None:
        request = self._requests.get(number)
        if request is not None:
            self._withdraw(request, now)
            self.outcome.cancelled += 1
            self._end(request, now)

    def _withdraw(self, request: Request, now: float) -> None:
        """CANCEL to the copy, or out of those held."""
        if request.copy is not None:
            self.copies[request.copy.copy].batcher.cancel(request.number, now=now)
        request.held = False

    def _take_back(self, request: Request, now: float) -> None:
        """A copy returned it: to another copy, or held until one is there."""
        state = request.copy
        assert state is not None, f"request {request.number} came back from nowhere"
        request.copy = None
        self.router.release(state)
        request.failures += (state.copy,)
        if request.attempts >= ATTEMPTS_MAX:
            self._give_up(request, "gateway: given-up", now)
        elif not self._route_again(request, now, same_copy=False):
            if len(self._held) >= HELD_MAX:
                self._give_up(request, "gateway: too-many-held", now)
                return
            request.held = True
            self._held.append(request)
            if not self._held_timer:
                self._held_timer = True
                heappush(self._heap, (now + HELD_RETRY_S, HELD_RETRY, 0, 0))

    def _give_up(self, request: Request, why: str, now: float) -> None:
        self.outcome.ends[why] += 1
        self._end(request, now)

    def _route_again(self, request: Request, now: float, *, same_copy: bool) -> bool:
        answer = self.router.pick(variant=request.variant, exclude=request.failures)
        self.recorder.add(router_row(now, request.number, answer))
        if isinstance(answer, NoRoute):
            return False
        if answer.state.copy in request.failures and not same_copy:
            self.router.release(answer.state)
            return False
        self.outcome.retries += 1
        request.held = False
        self._send(request, answer.state, now)
        return True

    def _try_held(self, now: float) -> None:
        held, self._held = self._held, []
        for request in held:
            if request.held and not self._route_again(request, now, same_copy=True):
                self._held.append(request)

    def _on_held_retry(self, now: float, _key: int, _epoch: int) -> None:
        self._held_timer = False
        self._try_held(now)
        if self._held and not self._held_timer:
            self._held_timer = True
            heappush(self._heap, (now + HELD_RETRY_S, HELD_RETRY, 0, 0))

    # the instances

    def _arm(self, copy: Copy, now: float) -> None:
        """A batcher's timer that is set too early stays: it fires for nothing and is set anew."""
        due = copy.batcher.next_deadline()
        if due is not None and due < copy.timer_at:
            copy.timer_at = due = max(due, now)
            heappush(self._heap, (due, BATCHER_TIMER, copy.number, 0))

    def _on_batcher_timer(self, now: float, number: int, _epoch: int) -> None:
        copy = self.copies[number]
        if now != copy.timer_at:
            return
        copy.timer_at = _INF
        actions = copy.batcher.on_timer(now=now)
        if actions:
            self._carry_out(copy, actions, now)
        self._arm(copy, now)

    def _carry_out(self, copy: Copy, actions: list[Action], now: float) -> None:
        add, outcome = self.recorder.add, self.outcome
        for action in actions:
            add(batcher_row(now, copy.number, action))
            if isinstance(action, RunBatch):
                rows, lane = action.rows, action.lane
                outcome.batches[rows] += 1
                outcome.reasons[action.reason] += 1
                copy.lanes[lane] = (action, now)
                done_at = now + self._service.run_s(rows, action.bucket)
                key = copy.number * self._lanes + lane
                heappush(self._heap, (done_at, LANE_DONE, key, copy.epoch))
            else:
                request = self._requests.get(action.id)
                if request is not None:
                    outcome.ends[f"batcher: {action.reason}"] += 1
                    self._end(request, now)

    def _on_lane_done(self, now: float, key: int, epoch: int) -> None:
        number, lane = divmod(key, self._lanes)
        copy = self.copies[number]
        running = copy.lanes[lane]
        if epoch != copy.epoch:
            return  # its worker died
        assert running is not None, f"nothing runs on lane {lane} of copy {number}"
        batch, started = running
        copy.lanes[lane] = None
        outcome = self.outcome
        outcome.busy_s += now - started
        actions = copy.batcher.lane_freed(lane, now=now)
        if actions:
            self._carry_out(copy, actions, now)
        self._arm(copy, now)
        run_s = int((now - started) * 1e6) * 1e-6  # whole microseconds, as in a REPLY frame
        requests, latencies_s = self._requests, outcome.latencies_s
        observe, level_max = self.admission.observe, len(latencies_s) - 1
        for ident in batch.ids:
            request = requests.get(ident)
            if request is not None:  # else its client went away, or its deadline passed
                observe(run_s, batch.rows, request.at)
                level = request.arrival.priority
                latencies_s[level if level < level_max else level_max].append(now - request.at)
                self._end(request, now)
                outcome.answered_at = now
                outcome.events += 1

    def _on_fault(self, now: float, key: int, _epoch: int) -> None:
        fault: Fault = self._scenario.faults[key // 2]
        copy = self.copies[fault.copy]
        if key % 2:
            self._recover(copy, now)
            return
        heappush(self._heap, (now + fault.back_after_s, FAULT, key + 1, 0))
        copy.epoch += 1
        queued = copy.batcher.give_back(now=now)
        running: list[tuple[int, ...]] = []
        for batch in copy.lanes:
            running.append(batch[0].ids if batch is not None else ())
            if batch is not None:
                self.outcome.busy_s += now - batch[1]
        # As the workers of the lanes are found dead one by one: with the last the copy is lost.
        self._return((*chain(*running[:-1]), *queued), now)
        self.router.set_healthy(copy.number, False)
        self._return(running[-1], now)

    def _return(self, numbers: tuple[int, ...], now: float) -> None:
        for number in numbers:
            request = self._requests.get(number)
            if request is not None:  # else its client went away, or its deadline passed
                self._take_back(request, now)

    def _recover(self, copy: Copy, now: float) -> None:
        for lane, batch in enumerate(copy.lanes):
            if batch is not None:
                copy.lanes[lane] = None
                copy.batcher.lane_freed(lane, now=now, timed=False)
        self.router.set_healthy(copy.number, True)
        self._try_held(now)
