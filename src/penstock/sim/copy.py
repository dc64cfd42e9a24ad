"""A copy in a run: its `Batcher`, its timer, and lanes with random run times.

It follows the live copy and its batcher driver step by step.
"""

from __future__ import annotations

from heapq import heappush
from typing import Protocol

from penstock.core.batching.batcher import Action, Batcher, RunBatch
from penstock.core.blame.poison_requests import reason_of_death
from penstock.core.routing.rebalance import evenly
from penstock.sim.events import BATCHER_TIMER, LANE_DONE, Event
from penstock.sim.outcome import RunOutcome
from penstock.sim.record import DecisionRecorder, batcher_row
from penstock.sim.scenario import Scenario
from penstock.sim.service import ServiceTimes
from penstock.sim.workload import Arrival

_INF = float("inf")


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


class SimulatedCopy(Protocol):
    """What the gateway and the heap of events call on a copy."""

    def accept(
        self, number: int, arrival: Arrival, deadline: float, now: float, *, alone: bool = False
    ) -> None: ...

    def cancel(self, number: int, now: float) -> None: ...

    def give_back(self, count: int, now: float) -> list[int]: ...

    def on_timer(self, now: float) -> None: ...

    def on_lane_done(self, lane: int, epoch: int, now: float) -> None: ...

    def die(self, now: float) -> None: ...

    def come_back(self, now: float) -> None: ...

    def hang(self, now: float) -> None: ...

    def go_on(self, now: float) -> None: ...

    def check_invariants(self) -> None: ...


class TwinCopy:
    """One copy on an instance of its own, whose model runs batch by batch."""

    __slots__ = (
        "_ahead", "_alone", "_epoch", "_events", "_gateway", "_hangs", "_lanes", "_number",
        "_outcome", "_recorder", "_service", "_spec", "_speed", "_timer_at", "batcher",
    )  # fmt: skip

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
        self._arm(now)

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

    def _arm(self, now: float) -> None:
        """A timer that is set too early stays: it fires without effect and is set again."""
        due = self.batcher.next_deadline()
        if due is not None and due < self._timer_at:
            self._timer_at = due = due if due > now else now
            heappush(self._events, (due, BATCHER_TIMER, self._number, 0))

    def on_timer(self, now: float) -> None:
        if now != self._timer_at or self._hangs:
            return
        self._timer_at = _INF
        actions = self.batcher.on_timer(now=now)
        if actions:
            self._carry_out(actions, now)
        self._arm(now)

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
        self._arm(now)
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
