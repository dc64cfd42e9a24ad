"""A generating copy in a run: an engine whose steps are events.

It reports as the live copy does: the first piece of an answer and its end, and at a death which
answers are broken and which can be computed elsewhere. `core/batching/generation_steps.py` says how
long steps take.
"""

from __future__ import annotations

import random
from heapq import heappush

from penstock.core.batching.generation_steps import EngineModel
from penstock.core.blame.poison_requests import reason_of_death
from penstock.sim.copy import Reports
from penstock.sim.events import LANE_DONE, Event
from penstock.sim.outcome import RunOutcome
from penstock.sim.workload import Arrival


def engine_noise(seed: object, number: int) -> random.Random:
    """The noise on the step times of copy `number`, in the run with this seed."""
    return random.Random(f"{seed}/{number}/engine")


class TwinGenerationCopy:
    """One copy on an instance of its own."""

    __slots__ = (
        "_begun", "_engine", "_epoch", "_events", "_gateway", "_hangs", "_number", "_outcome",
        "_started", "_streaming",
    )  # fmt: skip

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
