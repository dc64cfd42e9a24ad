"""One endpoint under virtual time: an event heap around the live deciding classes.

The twin does what the live drivers do, in the same order, without sockets or threads. Frames take
no time, and a timer fires exactly at its moment. `tests/drivers/` checks that: the same scenario
through the live drivers under a fake clock gives the identical list of actions.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from penstock.core.batching.generation_steps import EngineModel
from penstock.sim.copy import (
    ARRIVAL,
    FAULT,
    Event,
    SimulatedCopy,
    TwinCopy,
    TwinGenerationCopy,
    engine_noise,
    without_collector,
)
from penstock.sim.gateway import TwinGateway
from penstock.sim.outcome import RunOutcome
from penstock.sim.record import DecisionRecorder
from penstock.sim.scenario import COPY_HUNG, Scenario
from penstock.sim.workload import ServiceTimes

_INF = float("inf")

_Handler = Callable[[float, int, int], None]


class Twin:
    """One run of a scenario. Without a `seed`, it uses the scenario's own."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int | None = None,
        recorder: DecisionRecorder | None = None,
    ) -> None:
        seed = scenario.seed if seed is None else seed
        self.recorder = recorder or DecisionRecorder()
        self.outcome = RunOutcome(scenario.batching.priorities)
        self._scenario = scenario
        self._events: list[Event] = []
        self.gateway = TwinGateway(scenario, seed, self._events, self.recorder, self.outcome)
        self._service = ServiceTimes(scenario.service, seed)
        self.copies = {
            route.copy: self._copy(route.copy, seed)
            for variant in scenario.routes().variants
            for route in variant.copies
        }
        self.gateway.copies.update(self.copies)

    def _copy(self, number: int, seed: int) -> SimulatedCopy:
        scenario, gateway, events = self._scenario, self.gateway, self._events
        if scenario.generation is not None:
            engine = EngineModel(scenario.generation, engine_noise(seed, number))
            return TwinGenerationCopy(number, engine, gateway, events, self.outcome)
        return TwinCopy(
            number,
            scenario,
            gateway,
            self._service,
            events,
            self.recorder,
            self.outcome,
            scenario.speeds()[number],
        )

    def run(self) -> RunOutcome:
        """Runs from the first arrival until nothing is in flight."""
        gateway = self.gateway
        for number, fault in enumerate(self._scenario.faults):
            heappush(self._events, (fault.at_s, FAULT, 2 * number, 0))
        for at in gateway.workload.first():
            heappush(self._events, (at, ARRIVAL, 0, 0))
        handlers: tuple[_Handler, ...] = (
            self._on_fault,
            self._on_lane_done,
            gateway.on_arrival,
            gateway.on_client_gone,
            self._on_batcher_timer,
            gateway.on_deadlines,
            gateway.on_held_retry,
            gateway.on_outlier_look,
        )
        with without_collector():
            self.outcome.events += self._handle_all(handlers)
        self.check_invariants()
        assert not gateway.requests, f"{len(gateway.requests)} requests never ended"
        return self.outcome

    def _handle_all(self, handlers: tuple[_Handler, ...]) -> int:
        """Handles events in their order until there are none; returns their number."""
        events = self._events
        arrivals = self.gateway.workload.open()  # ascending, so they need no place in the heap
        arrive = handlers[ARRIVAL]
        next_at = next(arrivals, _INF)
        handled = 0
        while events or next_at < _INF:
            handled += 1
            if not events or (next_at, ARRIVAL) <= events[0][:2]:
                arrive(next_at, 0, 0)
                next_at = next(arrivals, _INF)
            else:
                at, kind, key, epoch = heappop(events)
                handlers[kind](at, key, epoch)
        return handled

    def check_invariants(self) -> None:
        """Raises AssertionError if any machine contradicts itself."""
        self.gateway.router.check_invariants()
        self.gateway.admission.check_invariants()
        for copy in self.copies.values():
            copy.check_invariants()

    def _on_lane_done(self, now: float, key: int, epoch: int) -> None:
        number, lane = divmod(key, self._scenario.batching.lanes)
        self.copies[number].on_lane_done(lane, epoch, now)

    def _on_batcher_timer(self, now: float, number: int, _epoch: int) -> None:
        self.copies[number].on_timer(now)

    def _on_fault(self, now: float, key: int, _epoch: int) -> None:
        fault = self._scenario.faults[key // 2]
        copy = self.copies[fault.copy]
        hangs = fault.kind == COPY_HUNG
        if key % 2:
            (copy.go_on if hangs else copy.come_back)(now)
            return
        heappush(self._events, (now + fault.back_after_s, FAULT, key + 1, 0))
        if hangs:
            self.gateway.outliers.hung.add(fault.copy)
            copy.hang(now)
        else:
            copy.die(now)
