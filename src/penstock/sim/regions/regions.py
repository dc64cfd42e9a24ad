"""Several regions under virtual time: users, copies, and the network between them.

The deciding classes are the live ones: a `TrafficRouter` for each region's users, an
`EndpointRouter` in each region, an `EngineModel` as each copy. Only the network is modelled: a
request, an answer or a report of a region takes `delay_s` from one region to another.

1. A user sends a request. The sender of its region (`regions_senders.py`) chooses a region, or
keeps the request.
2. After the delay it arrives. The region's own router chooses a copy, whatever its load: a request
   that was sent on an old report waits in the engine's queue.
3. The first token and the end arrive back after the delay; then the sender's slot is free.
4. Each region reports its room to all senders, every `news_s` if it has changed. The report arrives
   after the delay; it does not count requests sent within one round trip before that.

A lost region refuses connections. Requests that had not begun there come back to their sender,
which sends them elsewhere. A region that is cut off sends nothing at all: probes detect that, and
requests that have not begun are then sent elsewhere, too.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from penstock.core.batching.generation_steps import EngineModel
from penstock.core.routing import CopyState
from penstock.core.traffic import RegionObserved
from penstock.sim.copy import LANE_DONE, Event, TwinGenerationCopy, engine_noise, without_collector
from penstock.sim.outcome import RegionsOutcome, RunOutcome
from penstock.sim.regions.regions_scenario import (
    CUT,
    Demand,
    InTurn,
    Policy,
    Pushing,
    RegionsScenario,
)
from penstock.sim.regions.regions_senders import (
    BalancedSenders,
    InTurnSenders,
    PushingSenders,
    RegionsRequest,
    Senders,
)

_INF = float("inf")

# Kinds of events, in their order at the same moment; each comment names the key.
_FAULT = 0  #: twice the fault's number, plus 1 for its end
assert LANE_DONE == 1  # copy
_ARRIVES = 2  #: attempt; it reaches the region that it was sent to
_ANSWERED = 3  #: attempt; its last byte is back with its sender
_FAILED = 4  #: attempt; its sender learns that it was not answered
_NEWS = 5  #: message
_TELL = 6  #: region
_PROBE = 7  #: region of users
_PROBED = 8  #: (region of users * regions + region) * 2, plus 1 if the probe was answered

_LATE_SHARE_MAX = 0.01  #: share of requests that may be late if a P99 is to be kept
_SPEAKS_S = 1.0  #: longest time between two reports of a region, changed or not


class RegionsTwin:
    """One run of a scenario under a policy."""

    def __init__(
        self,
        scenario: RegionsScenario,
        policy: Policy,
        *,
        seed: int,
        promise_s: float | None = None,
    ) -> None:
        """`promise_s`: the run ends once more than 1 in 100 first tokens come later than this."""
        self.scenario = scenario
        self.outcome = RegionsOutcome(len(scenario.regions))
        self.requests: dict[int, RegionsRequest] = {}  #: requests in flight, by attempt
        self.waiting = 0  #: number of requests that senders keep
        self.copies_of: list[tuple[int, ...]] = []
        self._promise_s = _INF if promise_s is None else promise_s
        self._demand = Demand(scenario, seed)
        self._arrivals = list(self._demand.arrivals())
        self._late_left = int(_LATE_SHARE_MAX * len(self._arrivals))
        self._events: list[Event] = []
        self._attempts = 0
        self._tallies = RunOutcome(1)
        self._copies: dict[int, TwinGenerationCopy] = {}
        self._engines: dict[int, EngineModel] = {}
        self._region_of: dict[int, int] = {}  #: copy -> its region
        self._up = [True] * len(scenario.regions)
        self._cut = [False] * len(scenario.regions)
        self._broke_at = 0.0  #: time of the last fault
        #: number -> (receiving region, report)
        self._messages: dict[int, tuple[int, RegionObserved]] = {}
        self._messages_sent = 0
        #: time and content of each region's last report
        self._told: list[tuple[float, tuple[int, int, int]]] = []
        for region, told in enumerate(scenario.regions):
            self._add_copies(region, told.copies, seed)
        self._told = [(-_INF, (0, 0, 0)) for _ in scenario.regions]
        self._senders = self._senders_of(policy, seed)

    def _senders_of(self, policy: Policy, seed: int) -> Senders:
        if isinstance(policy, Pushing):
            return PushingSenders(self, policy, seed)
        if isinstance(policy, InTurn):
            return InTurnSenders(self, policy, seed)
        return BalancedSenders(self, policy, seed)

    def _add_copies(self, region: int, count: int, seed: int) -> None:
        first = len(self._copies) + 1
        numbers = tuple(range(first, first + count))
        self.copies_of.append(numbers)
        for number in numbers:
            engine = EngineModel(self.scenario.generation, engine_noise(seed, number))
            self._engines[number] = engine
            self._copies[number] = TwinGenerationCopy(
                number, engine, self, self._events, self._tallies
            )
            self._region_of[number] = region

    # the run

    def run(self) -> RegionsOutcome:
        """Runs from the first arrival until nothing is in flight."""
        for number, fault in enumerate(self.scenario.faults):
            heappush(self._events, (fault.at_s, _FAULT, 2 * number, 0))
        for region in range(len(self.scenario.regions)):
            heappush(self._events, (0.0, _TELL, region, 0))
            heappush(self._events, (0.0, _PROBE, region, 0))
        with without_collector():
            self._handle_all()
        self.outcome.steps = sum(self._tallies.batches.values())
        self._senders.check_invariants()
        return self.outcome

    def _handle_all(self) -> None:
        handlers: dict[int, Callable[[float, int, int], None]] = {
            _FAULT: self._on_fault,
            LANE_DONE: self._on_step,
            _ARRIVES: self._on_arrives,
            _ANSWERED: self._on_answered,
            _FAILED: self._on_failed,
            _NEWS: self._on_news,
            _TELL: self._on_tell,
            _PROBE: self._on_probe,
            _PROBED: self._on_probed,
        }
        events, outcome = self._events, self.outcome
        arrivals = iter(self._arrivals)
        following = next(arrivals, None)
        while following is not None or self.requests or self.waiting:
            if outcome.stopped:
                return
            if following is not None and following[0] <= events[0][0]:
                self._on_user(*following)
                following = next(arrivals, None)
            else:
                at, kind, key, epoch = heappop(events)
                handlers[kind](at, key, epoch)

    def _on_user(self, now: float, region: int) -> None:
        self.outcome.requests = number = self.outcome.requests + 1
        arrival = self._demand.sample(region)
        prompt = self._demand.prompt(number, arrival)
        self._senders.ask(RegionsRequest(arrival, now, region, prompt), now)

    def _on_step(self, now: float, number: int, epoch: int) -> None:
        for attempt, tokens in self._engines[number].joining():
            self.outcome.tokens_read += tokens
            request = self.requests.get(attempt)
            if request is not None:
                self.outcome.joined += 1
                self.outcome.found += tokens <= request.arrival.length
        self._copies[number].on_lane_done(0, epoch, now)

    # the network

    def send(
        self, request: RegionsRequest, region: int, copy: CopyState | None, now: float
    ) -> None:
        """Sends it; `copy`: the copy that the sender has chosen; None = the region chooses."""
        self._attempts = attempt = self._attempts + 1
        request.attempt, request.region, request.copy = attempt, region, copy
        self.requests[attempt] = request
        delay_s = self.scenario.delay_s[request.front][region]
        heappush(self._events, (now + delay_s, _ARRIVES, attempt, 0))

    def reaches(self, front: int, region: int) -> bool:
        """Whether messages between them arrive."""
        return front == region or not (self._cut[front] or self._cut[region])

    def _on_arrives(self, now: float, attempt: int, _epoch: int) -> None:
        request = self.requests.get(attempt)
        if request is None or not self.reaches(request.front, request.region):
            return  # no error comes back: its sender detects this by its probes
        if self._up[request.region] and request.copy is None:
            request.copy = self._senders.place(request, now)
        if request.copy is None or not self._up[request.region]:
            self._come_back(request, _FAILED, now)
            return
        self._copies[request.copy.copy].accept(attempt, request.arrival, _INF, now)

    def _come_back(self, request: RegionsRequest, kind: int, now: float) -> None:
        if self.reaches(request.front, request.region):
            delay_s = self.scenario.delay_s[request.front][request.region]
            heappush(self._events, (now + delay_s, kind, request.attempt, 0))

    def _on_answered(self, now: float, attempt: int, _epoch: int) -> None:
        request = self.requests.pop(attempt, None)
        if request is not None:
            self.outcome.answered_at = now
            self.outcome.tokens += request.arrival.answer_tokens
            self._senders.back(request, True, now)

    def _on_failed(self, now: float, attempt: int, _epoch: int) -> None:
        request = self.requests.get(attempt)
        if request is not None:
            self.give_up(request, now)

    def give_up(self, request: RegionsRequest, now: float) -> None:
        """Its sender gives this attempt up, and sends it elsewhere if its user has seen no
        token."""
        del self.requests[request.attempt]
        self._senders.back(request, False, now)
        if request.begun:
            self.outcome.broken += 1
            return
        request.failed += (request.region,)
        self.outcome.rerouted += 1
        self.outcome.rerouted_s_max = max(self.outcome.rerouted_s_max, now - self._broke_at)
        self._senders.ask(request, now)

    # reports of copies (`sim.copy.Reports`)

    def first_token(self, attempt: int, now: float) -> None:
        request = self.requests.get(attempt)
        if request is None or not self.reaches(request.front, request.region):
            return
        took_s = now + self.scenario.delay_s[request.front][request.region] - request.at
        request.begun = True
        self.outcome.first_token_s[request.front].append(took_s)
        if took_s > self._promise_s:
            self._late_left -= 1
            self.outcome.stopped = self._late_left < 0

    def streamed(self, attempt: int, run_us: int, now: float) -> None:
        self._ended(attempt, _ANSWERED, now)

    def broken(self, attempt: int, now: float) -> None:
        self._ended(attempt, _FAILED, now)

    def returned(self, attempts: tuple[int, ...], reason: str, now: float) -> None:
        for attempt in attempts:
            self._ended(attempt, _FAILED, now)

    def _ended(self, attempt: int, kind: int, now: float) -> None:
        request = self.requests.get(attempt)
        self._senders.leaves(attempt)
        if request is not None:
            self._come_back(request, kind, now)
            if self._senders.room_on_answers and kind == _ANSWERED:
                told = self._senders.room_of(request.region)
                self._tell(request.front, request.region, told, now)

    def heard(self, copy: int) -> None:
        """Does nothing: copies here are lost but never hang, so there are no outliers."""

    def connection_lost(self, copy: int, now: float) -> None:
        raise AssertionError("copies here never hang")

    def copy_lost(self, copy: int) -> None:
        self._senders.set_healthy(self._region_of[copy], copy, False)

    def copy_ready(self, copy: int, now: float) -> None:
        self._senders.set_healthy(self._region_of[copy], copy, True)

    def answered(self, attempts: tuple[int, ...], run_us: int, rows: int, now: float) -> None:
        raise AssertionError("copies here generate")

    def not_run(self, attempt: int, reason: str, now: float) -> None:
        raise AssertionError("copies here generate")

    # reports and probes

    def _on_tell(self, now: float, region: int, _epoch: int) -> None:
        heappush(self._events, (now + self.scenario.news_s, _TELL, region, 0))
        if not self._up[region]:
            return
        told_at, before = self._told[region]
        told = self._senders.room_of(region)
        if told == before and now < told_at + _SPEAKS_S:
            return
        self._told[region] = now, told
        for front in range(len(self.scenario.regions)):
            self._tell(front, region, told, now)

    def _tell(self, front: int, region: int, told: tuple[int, int, int], now: float) -> None:
        if not self.reaches(front, region):
            return
        room, waiting, in_flight = told
        delay_s = self.scenario.delay_s[front][region]
        self._messages_sent = number = self._messages_sent + 1
        self._messages[number] = (
            front,
            RegionObserved(
                name=self.scenario.regions[region].name,
                room=room,
                waiting=waiting,
                in_flight=in_flight,
                said_at=now - delay_s,
                cache_tokens=len(self.copies_of[region]) * self.scenario.cache_tokens,
            ),
        )
        heappush(self._events, (now + delay_s, _NEWS, number, 0))

    def _on_news(self, now: float, number: int, _epoch: int) -> None:
        self._senders.heard(*self._messages.pop(number), now)

    def _on_probe(self, now: float, front: int, _epoch: int) -> None:
        probe_s, regions = self.scenario.probe_s, len(self.scenario.regions)
        heappush(self._events, (now + probe_s, _PROBE, front, 0))
        for region in range(regions):
            ok = self._up[region] and self.reaches(front, region)
            took_s = min(probe_s, 2.0 * self.scenario.delay_s[front][region]) if ok else probe_s
            key = (front * regions + region) * 2 + ok
            heappush(self._events, (now + took_s, _PROBED, key, 0))

    def _on_probed(self, now: float, key: int, _epoch: int) -> None:
        pair, ok = divmod(key, 2)
        self._senders.probed(*divmod(pair, len(self.scenario.regions)), bool(ok), now)

    # faults

    def _on_fault(self, now: float, key: int, _epoch: int) -> None:
        number, ends = divmod(key, 2)
        fault = self.scenario.faults[number]
        region = fault.region
        if not ends:
            heappush(self._events, (now + fault.back_after_s, _FAULT, key + 1, 0))
            self._broke_at = now
        if fault.kind == CUT:
            self._cut[region] = not ends
            return
        self._up[region] = bool(ends)
        for copy in self.copies_of[region]:
            if ends:
                self._copies[copy].come_back(now)
            else:
                self._copies[copy].die(now)
