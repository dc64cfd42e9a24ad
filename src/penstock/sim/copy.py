"""A copy in a run, and the events that drive it and all the rest.

`TwinCopy` runs batches: its `Batcher`, its timer, and lanes with random run times. It follows the
live copy and its batcher driver step by step. `TwinGenerationCopy` generates: an engine whose steps
are events (`core/batching/generation_steps.py` says how long they take). It reports as the live
copy does: the first piece of an answer and its end, and at a death which answers are broken and
which can be computed elsewhere.

An event is (at, kind, key, epoch): seconds, one of the kinds below, the object concerned, and the
number of deaths of the copy when the event was planned. Events at the same moment happen by kind,
then by key. Equal events are interchangeable, so a run can be repeated without a running number.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappush
from typing import Final, Protocol

from penstock.core.batching.batcher import Action, Batcher, RunBatch
from penstock.core.batching.generation_steps import EngineModel
from penstock.core.blame.poison_requests import reason_of_death
from penstock.core.routing.rebalance import evenly
from penstock.sim.outcome import RunOutcome
from penstock.sim.record import DecisionRecorder, batcher_row
from penstock.sim.scenario import Scenario
from penstock.sim.workload import Arrival, ServiceTimes

Event = tuple[float, int, int, int]

# In their order at the same moment. Each comment names the key.
FAULT: Final = 0  #: twice the fault's number in the scenario, plus 1 for the recovery
LANE_DONE: Final = 1  #: copy * lanes + lane
ARRIVAL: Final = 2  #: 0; the request's properties are drawn when it arrives
CLIENT_GONE: Final = 3  #: request
BATCHER_TIMER: Final = 4  #: copy; after the arrivals of this moment, which are one socket read
DEADLINES: Final = 5  #: 0
HELD_RETRY: Final = 6  #: 0
OUTLIER_LOOK: Final = 7  #: 0

_INF = float("inf")


@contextmanager
def without_collector() -> Iterator[None]:
    """Handles events without garbage collection: nothing there makes cycles, and traversing live
    objects costs a fifth of a run."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Reports(Protocol):
    """The gateway, to which a copy reports. Its calls are the frames of the live instance."""

    def answered(self, numbers: tuple[int, ...], run_us: int, rows: int, now: float) -> None: ...

    def first_token(self, number: int, now: float) -> None: ...

    def streamed(self, number: int, run_us: int, now: float) -> None: ...

    def broken(self, number: int, now: float) -> None: ...

    def not_run(self, number: int, reason: str, now: float) -> None: ...

    def returned(self, numbers: tuple[int, ...], reason: str, now: float) -> None: ...

    def heard(self, copy: int) -> None: ...

    def copy_lost(self, copy: int) -> None: ...

    def connection_lost(self, copy: int, now: float) -> None: ...

    def copy_ready(self, copy: int, now: float) -> None: ...


class TwinCopy:
    """One copy on an instance of its own, whose model runs batch by batch."""

    def __init__(
        self,
        number: int,
        scenario: Scenario,
        gateway: Reports,
        service: ServiceTimes,
        events: list[Event],
        recorder: DecisionRecorder,
        outcome: RunOutcome,
        speed: float = 1.0,
    ) -> None:
        """`speed`: a factor; 2 halves the times of `service`."""
        self._speed = speed
        self._spec = scenario.batching
        self._hangs = False
        self.batcher = Batcher(self._spec)
        self._number = number
        self._gateway = gateway
        self._service = service
        self._events = events
        self._recorder = recorder
        self._outcome = outcome
        #: each lane's batch and start time; after a death it stays until the lane has a new worker
        self._lanes: list[tuple[RunBatch, float] | None] = [None] * scenario.batching.lanes
        #: the next batch that a busy lane holds already, and its run time
        self._ahead: list[tuple[RunBatch, float] | None] = [None] * scenario.batching.lanes
        self._alone: set[int] = set()  #: requests that run alone in their batch
        self._epoch = 0  #: number of deaths; events of an earlier worker's batches are ignored
        self._timer_at = _INF

    def accept(
        self, number: int, arrival: Arrival, deadline: float, now: float, *, alone: bool = False
    ) -> None:
        """Receives an INVOKE frame."""
        if self._hangs:
            return  # its instance is stopped and reads nothing
        if alone:
            self._alone.add(number)
        actions = self.batcher.add(
            number,
            rows=arrival.rows,
            length=arrival.length,
            priority=arrival.priority,
            deadline=deadline,
            alone=alone,
            now=now,
        )
        if actions:
            self._carry_out(actions, now)
        self._turn(now)

    def cancel(self, number: int, now: float) -> None:
        """Receives a CANCEL frame. A running batch finishes unseen."""
        if not self._hangs:
            self.batcher.cancel(number, now=now)

    def give_back(self, count: int, now: float) -> list[int]:
        """Gives back at most `count` waiting requests, spread over the queue. Lone ones stay."""
        if self._hangs:
            return []
        waiting = [number for number in self.batcher.waiting() if number not in self._alone]
        chosen = evenly(waiting, count)
        for number in chosen:
            self.batcher.cancel(number, now=now)
        return chosen

    def _carry_out(self, actions: list[Action], now: float) -> None:
        outcome = self._outcome
        for action in actions:
            self._recorder.add(batcher_row(now, self._number, action))
            if isinstance(action, RunBatch):
                rows, lane = action.rows, action.lane
                outcome.batches[rows] += 1
                outcome.reasons[action.reason] += 1
                run_s = self._service.run_s(rows, action.bucket) / self._speed
                if self._lanes[lane] is None:
                    self._begin(lane, action, run_s, now)
                else:
                    self._ahead[lane] = (action, run_s)
            else:
                self._gateway.not_run(action.id, action.reason, now)

    def _begin(self, lane: int, batch: RunBatch, run_s: float, now: float) -> None:
        self._lanes[lane] = (batch, now)
        key = self._number * len(self._lanes) + lane
        heappush(self._events, (now + run_s, LANE_DONE, key, self._epoch))

    def _turn(self, now: float) -> None:
        """The batcher is asked once all arrivals of this moment, one socket read, are there."""
        if self.batcher.queue_rows:
            self._arm(now, now)

    def _arm(self, now: float, due: float | None) -> None:
        """A timer that is set too early stays: it fires without effect and is set again."""
        if due is not None and due < self._timer_at:
            self._timer_at = due = due if due > now else now
            heappush(self._events, (due, BATCHER_TIMER, self._number, 0))

    def on_timer(self, now: float) -> None:
        if now != self._timer_at or self._hangs:
            return
        self._timer_at = _INF
        actions, due = self.batcher.on_timer(now=now)
        if actions:
            self._carry_out(actions, now)
        self._arm(now, due)

    def on_lane_done(self, lane: int, epoch: int, now: float) -> None:
        if epoch != self._epoch:
            return  # the worker of this batch has died
        running = self._lanes[lane]
        assert running is not None, f"nothing runs on lane {lane} of copy {self._number}"
        batch, started = running
        self._lanes[lane] = None
        self._outcome.busy_s += now - started
        ahead, self._ahead[lane] = self._ahead[lane], None
        if ahead is not None:
            self._begin(lane, *ahead, now)
        actions = self.batcher.lane_freed(lane, now=now)
        if actions:
            self._carry_out(actions, now)
        self._turn(now)
        run_us = int((now - started) * 1e6)  # as in a REPLY frame
        self._gateway.answered(batch.ids, run_us, batch.rows, now)

    def die(self, now: float) -> None:
        """Its workers are found dead lane by lane; after the last one the copy is lost."""
        self._epoch += 1
        queued = self.batcher.give_back(now=now)
        ran: list[tuple[int, ...]] = []
        for lane, running in enumerate(self._lanes):
            held, self._ahead[lane] = self._ahead[lane], None
            ahead = held[0].ids if held is not None else ()
            ran.append((running[0].ids if running is not None else ()) + ahead)
            if running is not None:
                self._outcome.busy_s += now - running[1]
        for numbers in ran[:-1]:
            self._gateway.returned(numbers, reason_of_death(len(numbers) - 1), now)
        self._gateway.returned(queued, "copy-lost", now)
        self._gateway.copy_lost(self._number)
        self._gateway.returned(ran[-1], reason_of_death(len(ran[-1]) - 1), now)

    def come_back(self, now: float) -> None:
        """Its new workers are ready."""
        for lane, running in enumerate(self._lanes):
            if running is not None:
                self._lanes[lane] = None
                self.batcher.lane_freed(lane, now=now, timed=False)
        self._gateway.copy_ready(self._number, now)

    def hang(self, now: float) -> None:
        """Its instance is stopped: none of its batches ends any more."""
        self._hangs = True
        self._epoch += 1
        self._outcome.busy_s += sum(now - lane[1] for lane in self._lanes if lane is not None)

    def go_on(self, now: float) -> None:
        """The instance was killed and another is ready; the gateway sees a new connection."""
        self._hangs = False
        self.batcher = Batcher(self._spec)
        self._lanes, self._ahead = [None] * len(self._lanes), [None] * len(self._lanes)
        self._alone.clear()
        self._timer_at = _INF
        self._gateway.connection_lost(self._number, now)
        self._gateway.copy_ready(self._number, now)

    def check_invariants(self) -> None:
        self.batcher.check_invariants()


def engine_noise(seed: object, number: int) -> random.Random:
    """The noise on the step times of copy `number`, in the run with this seed."""
    return random.Random(f"{seed}/{number}/engine")


class TwinGenerationCopy:
    """One copy on an instance of its own, whose engine generates answers token by token."""

    def __init__(
        self,
        number: int,
        engine: EngineModel,
        gateway: Reports,
        events: list[Event],
        outcome: RunOutcome,
    ) -> None:
        self._number = number
        self._engine = engine
        self._gateway = gateway
        self._events = events
        self._outcome = outcome
        self._epoch = 0  #: number of deaths; a step of an earlier engine is ignored
        self._started: float | None = None  #: start of the present step; None = idle
        self._hangs = False
        self._streaming: set[int] = set()  #: requests with at least one token
        self._begun: dict[int, float] = {}  #: request -> time at which it got its slot

    def accept(
        self, number: int, arrival: Arrival, deadline: float, now: float, *, alone: bool = False
    ) -> None:
        """Receives an INVOKE frame. The gateway's own timer handles the deadline."""
        self._engine.add(number, arrival)
        if self._started is None and not self._hangs:
            self._begin(now)

    def cancel(self, number: int, now: float) -> None:
        """Receives a CANCEL frame: the sequence leaves with the present step."""
        self._engine.cancel(number)
        self._streaming.discard(number)
        self._begun.pop(number, None)

    def give_back(self, count: int, now: float) -> list[int]:
        """Gives back at most `count` requests that wait for room in the engine."""
        return [] if self._hangs else self._engine.give_back(count)

    def _begin(self, now: float) -> None:
        step_s = self._engine.begin_step()
        self._started = None if step_s is None else now
        if step_s is not None:
            heappush(self._events, (now + step_s, LANE_DONE, self._number, self._epoch))
            self._begun.update((number, now) for number, _ in self._engine.joining())
            self._outcome.batches[self._engine.occupancy] += 1
            self._outcome.reasons["step"] += 1

    def on_lane_done(self, lane: int, epoch: int, now: float) -> None:
        if epoch != self._epoch:
            return
        assert self._started is not None, f"copy {self._number} ends a step that never began"
        self._outcome.busy_s += now - self._started
        firsts, done = self._engine.end_step()
        for number in firsts:
            self._gateway.first_token(number, now)
        self._streaming.update(firsts)
        self._streaming.difference_update(done)
        if self._streaming:  # each gets another token with each step
            self._gateway.heard(self._number)
        for number in done:
            run_us = int((now - self._begun.pop(number)) * 1e6)  # as in an END frame
            self._gateway.streamed(number, run_us, now)
        self._begin(now)

    def on_timer(self, now: float) -> None:
        raise AssertionError("an engine has no timer: it steps while there is work")

    def die(self, now: float) -> None:
        """Answers that had begun are broken; the other requests go back to the gateway."""
        self._epoch += 1
        if self._started is not None:
            self._outcome.busy_s += now - self._started
            self._started = None
        self._begun.clear()
        self._streaming.clear()
        begun, not_begun = self._engine.die()
        for number in begun:
            self._gateway.broken(number, now)
        reason = reason_of_death(len(begun) + len(not_begun) - 1)
        self._gateway.returned(tuple(not_begun), reason, now)
        self._gateway.copy_lost(self._number)

    def come_back(self, now: float) -> None:
        """A new engine is ready, its cache empty."""
        self._gateway.copy_ready(self._number, now)

    def hang(self, now: float) -> None:
        """Its instance is stopped: no step ends any more."""
        self._hangs = True
        self._epoch += 1
        if self._started is not None:
            self._outcome.busy_s += now - self._started
            self._started = None

    def go_on(self, now: float) -> None:
        """The instance was killed and another is ready; the gateway sees a new connection."""
        self._hangs = False
        self._engine.die()
        self._begun.clear()
        self._gateway.connection_lost(self._number, now)
        self._streaming.clear()
        self._gateway.copy_ready(self._number, now)

    def check_invariants(self) -> None:
        self._engine.check_invariants()


SimulatedCopy = TwinCopy | TwinGenerationCopy
