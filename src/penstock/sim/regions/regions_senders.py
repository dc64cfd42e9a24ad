"""The senders of all regions' users, by policy: they choose where a request goes.

They are thin layers around the deciding classes: they report events to them and carry out what
these return.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from penstock.core.deployment.deployment import ROUND_ROBIN, Group
from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.core.traffic import HeldForRegion, RegionObserved, TrafficRouter
from penstock.core.traffic.push_room import CopyRoom, overfull, room_of
from penstock.sim.outcome import RegionsOutcome
from penstock.sim.regions.regions_scenario import (
    Balanced,
    InTurn,
    Pushing,
    RegionsScenario,
    routes_of,
)
from penstock.sim.workload import Arrival

_GROUP = Group("all", "", incoming=False)


@dataclass(slots=True, eq=False)
class RegionsRequest:
    """A request of one region's user, wherever it is. The run and the senders write its fields."""

    arrival: Arrival
    at: float
    front: int  #: the region of its user
    prompt: bytes
    attempt: int = 0  #: its number at copies; a new one for each try
    region: int = -1  #: the region that it was sent to; -1 = none
    copy: CopyState | None = None  #: the copy chosen for it; None = the region chooses
    begun: bool = False  #: whether its user has seen a token
    failed: tuple[int, ...] = ()  #: regions that did not answer it


class RegionsRun(Protocol):
    """The senders' view of the run."""

    scenario: RegionsScenario
    outcome: RegionsOutcome
    requests: dict[int, RegionsRequest]  #: requests in flight, by attempt
    waiting: int  #: number of requests that senders keep
    copies_of: list[tuple[int, ...]]  #: by region

    def send(
        self, request: RegionsRequest, region: int, copy: CopyState | None, now: float
    ) -> None: ...

    def give_up(self, request: RegionsRequest, now: float) -> None: ...


class WithinRegions:
    """An `EndpointRouter` in each region, which chooses the copy of a request that was sent
    there."""

    def __init__(self, run: RegionsRun, policy: Pushing | InTurn, seed: int) -> None:
        self._run = run
        self.routers = [
            EndpointRouter(
                routes_of(
                    run.scenario,
                    copies,
                    strategy=policy.strategy,
                    threshold=policy.threshold or run.scenario.generation.sequences_max,
                ),
                random.Random(f"{seed}/routing/{region}"),
            )
            for region, copies in enumerate(run.copies_of)
        ]
        self._on_copies: dict[int, tuple[int, CopyState]] = {}  #: attempt -> region, copy

    def place(self, request: RegionsRequest, now: float) -> CopyState | None:
        answer = self.routers[request.region].pick(prompt=request.prompt, now=now)
        if not isinstance(answer, Routed):
            return None
        sequences = self._run.scenario.generation.sequences_max
        self._run.outcome.queued += answer.outstanding > sequences
        self._on_copies[request.attempt] = request.region, answer.state
        return answer.state

    def leaves(self, attempt: int) -> None:
        region, state = self._on_copies.pop(attempt)
        self.routers[region].release(state)

    def set_healthy(self, region: int, copy: int, healthy: bool) -> None:
        self.routers[region].set_healthy(copy, healthy)

    def check_invariants(self) -> None:
        for router in self.routers:
            router.check_invariants()


class PushingSenders(WithinRegions):
    """A `TrafficRouter` for each region's users, an `EndpointRouter` in each region."""

    def __init__(self, run: RegionsRun, policy: Pushing, seed: int) -> None:
        super().__init__(run, policy, seed)
        scenario = run.scenario
        self._sequences = scenario.generation.sequences_max
        self._slots = policy.slots
        self._names = [one.name for one in scenario.regions]
        self._number = {name: number for number, name in enumerate(self._names)}
        self.traffic = [
            TrafficRouter(policy.spec(scenario, front), random.Random(f"{seed}/traffic/{front}"))
            for front in range(len(self._names))
        ]
        self._held: list[dict[int, RegionsRequest]] = [{} for _ in self._names]
        self.room_on_answers = policy.room_on_answers

    def ask(self, request: RegionsRequest, now: float) -> None:
        front = request.front
        answer = self.traffic[front].pick(
            prefix=request.prompt,
            exclude=tuple(self._names[region] for region in request.failed),
            again=bool(request.failed),
            now=now,
        )
        if isinstance(answer, Routed):
            self._send(request, answer, now)
        elif isinstance(answer, HeldForRegion):
            self._run.outcome.told[f"held: {answer.reason}"] += 1
            self._run.waiting += 1
            self._held[front][answer.ticket] = request
        else:
            self._run.outcome.told[f"refused: {answer.reason}"] += 1
            self._run.outcome.lost += 1

    def _send(self, request: RegionsRequest, sent: Routed, now: float) -> None:
        told = f"{self._names[request.front]} > {sent.variant}: {sent.reason}"
        self._run.outcome.sent[told] += 1
        self._run.send(request, self._number[sent.variant], None, now)

    def _drain(self, front: int, now: float) -> None:
        for ticket, answer in self.traffic[front].released(now=now):
            self._run.waiting -= 1
            request = self._held[front].pop(ticket)
            if isinstance(answer, Routed):
                self._send(request, answer, now)
            else:
                self._run.outcome.told[f"refused: {answer.reason}"] += 1
                self._run.outcome.lost += 1

    def back(self, request: RegionsRequest, ok: bool, now: float) -> None:
        self.traffic[request.front].release(self._names[request.region], ok=ok, now=now)
        self._drain(request.front, now)

    def room_of(self, region: int) -> tuple[int, int, int]:
        copies = [
            CopyRoom(
                outstanding=load.outstanding,
                outstanding_max=load.outstanding_max,
                at_once=self._sequences,
                generates=True,
                slots=self._slots,
            )
            for load in self.routers[region].loads(_GROUP)
        ]
        room = room_of(copies, waiting=0, holds=False)
        return room, overfull(copies), sum(copy.outstanding for copy in copies)

    def heard(self, front: int, seen: RegionObserved, now: float) -> None:
        self.traffic[front].heard(seen, now=now)
        self._drain(front, now)

    def probed(self, front: int, region: int, ok: bool, now: float) -> None:
        traffic, name = self.traffic[front], self._names[region]
        traffic.probed(name, ok, now=now)
        if not ok and not traffic.serves(name, now=now):
            there = [
                request
                for request in self._run.requests.values()
                if request.front == front and request.region == region
            ]
            for request in there:
                self._run.give_up(request, now)
        self._drain(front, now)

    def check_invariants(self) -> None:
        super().check_invariants()
        for traffic in self.traffic:
            traffic.check_invariants()


class PlainBalancers:
    """A balancer for each region's users that takes no reports and no probes. Requests that it
    can't send wait there, in order."""

    room_on_answers = False

    def __init__(self, run: RegionsRun) -> None:
        self._run = run
        self._queues: list[deque[RegionsRequest]] = [deque() for _ in run.copies_of]

    def ask(self, request: RegionsRequest, now: float) -> None:
        if self._queues[request.front] or not self._sent(request, now):
            self._queues[request.front].append(request)
            self._run.waiting += 1

    def back(self, request: RegionsRequest, ok: bool, now: float) -> None:
        self._release(request)
        queue = self._queues[request.front]
        while queue and self._sent(queue[0], now):
            queue.popleft()
            self._run.waiting -= 1

    def room_of(self, region: int) -> tuple[int, int, int]:
        return 0, 0, 0

    def heard(self, front: int, seen: RegionObserved, now: float) -> None:
        """Does nothing: this balancer takes no reports."""

    def probed(self, front: int, region: int, ok: bool, now: float) -> None:
        """Does nothing: this balancer takes no probes."""

    def _sent(self, request: RegionsRequest, now: float) -> bool:
        raise NotImplementedError

    def _release(self, request: RegionsRequest) -> None:
        """Gives back the request's place in the balancer's own count."""
        raise NotImplementedError


class InTurnSenders(PlainBalancers, WithinRegions):
    """For each region's users a balancer that takes the regions in turn, as a plain HTTP balancer
    does: it sees addresses of regions and nothing behind them.

    Its `EndpointRouter` treats a region as a copy. A region that failed a request is not tried
    again while another one is left.
    """

    def __init__(self, run: RegionsRun, policy: InTurn, seed: int) -> None:
        PlainBalancers.__init__(self, run)
        WithinRegions.__init__(self, run, policy, seed)
        scenario = run.scenario
        routes = routes_of(
            scenario,
            tuple(range(len(scenario.regions))),
            strategy=ROUND_ROBIN,
            threshold=1,
            outstanding_max=policy.in_region_max,
        )
        self._names = [one.name for one in scenario.regions]
        self._balancers = [
            EndpointRouter(routes, random.Random(f"{seed}/in turn/{front}"))
            for front in range(len(scenario.regions))
        ]
        self._slots: dict[int, CopyState] = {}  #: attempt -> its slot in the balancer's own count

    def _sent(self, request: RegionsRequest, now: float) -> bool:
        answer = self._balancers[request.front].pick(exclude=request.failed, now=now)
        if not isinstance(answer, Routed):
            return False
        region = answer.state.copy
        told = f"{self._names[request.front]} > {self._names[region]}: {answer.reason}"
        self._run.outcome.sent[told] += 1
        self._run.send(request, region, None, now)
        self._slots[request.attempt] = answer.state
        return True

    def _release(self, request: RegionsRequest) -> None:
        self._balancers[request.front].release(self._slots.pop(request.attempt))

    def check_invariants(self) -> None:
        for router in (*self.routers, *self._balancers):
            router.check_invariants()


class BalancedSenders(PlainBalancers):
    """One `EndpointRouter` for each region's users, or for all, over the copies that the policy
    gives it.

    It learns at once whether a copy lives, which is more than real balancers know.
    """

    def __init__(self, run: RegionsRun, policy: Balanced, seed: int) -> None:
        super().__init__(run)
        self._region_of = {
            copy: region for region, copies in enumerate(run.copies_of) for copy in copies
        }
        everyone = tuple(self._region_of)
        self._routers = [
            EndpointRouter(
                routes_of(
                    run.scenario,
                    everyone if policy.everywhere else copies,
                    strategy=policy.strategy,
                    threshold=policy.threshold or run.scenario.generation.sequences_max,
                    outstanding_max=policy.outstanding_max,
                ),
                random.Random(f"{seed}/routing/{region}"),
            )
            for region, copies in enumerate(run.copies_of)
        ]
        if policy.together:
            self._routers = self._routers[:1] * len(self._routers)
            self._queues = self._queues[:1] * len(self._queues)

    def _sent(self, request: RegionsRequest, now: float) -> bool:
        answer = self._routers[request.front].pick(prompt=request.prompt, now=now)
        if not isinstance(answer, Routed):
            return False
        region = self._region_of[answer.state.copy]
        self._run.send(request, region, answer.state, now)
        return True

    def _release(self, request: RegionsRequest) -> None:
        assert request.copy is not None, "it was sent to a copy"
        self._routers[request.front].release(request.copy)

    def place(self, request: RegionsRequest, now: float) -> CopyState | None:
        raise AssertionError("the sender has chosen the copy")

    def leaves(self, attempt: int) -> None:
        """Does nothing: the sender has only its own count."""

    def set_healthy(self, region: int, copy: int, healthy: bool) -> None:
        for router in self._routers:
            router.set_healthy(copy, healthy)

    def check_invariants(self) -> None:
        for router in self._routers:
            router.check_invariants()


Senders = PushingSenders | InTurnSenders | BalancedSenders
