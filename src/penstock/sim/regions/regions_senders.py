"""The senders of all regions' users, by policy: who chooses where a request goes.

Thin around the classes that decide: they are told what happened, and what they return is done.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.core.traffic import HeldForRegion, RegionSeen, Sent, TrafficRouter
from penstock.core.traffic.push_room import CopyRoom, overfull, room_of
from penstock.sim.regions.regions_request import RegionsRequest
from penstock.sim.regions.regions_scenario import Balanced, Pushing, routes_of
from penstock.sim.regions.regions_within import WithinRegions

if TYPE_CHECKING:
    from penstock.sim.regions.regions import RegionsTwin

_GROUP = ("all", "")


class Senders(Protocol):
    room_on_answers: bool

    def ask(self, request: RegionsRequest, now: float) -> None: ...

    def back(self, request: RegionsRequest, ok: bool, now: float) -> None: ...

    def place(self, request: RegionsRequest, now: float) -> CopyState | None: ...

    def leaves(self, attempt: int) -> None: ...

    def room_of(self, region: int) -> tuple[int, int, int]: ...

    def heard(self, front: int, seen: RegionSeen, now: float) -> None: ...

    def probed(self, front: int, region: int, ok: bool, now: float) -> None: ...

    def set_healthy(self, region: int, copy: int, healthy: bool) -> None: ...

    def check_invariants(self) -> None: ...


class PushingSenders(WithinRegions):
    """A `TrafficRouter` for each region's users, an `EndpointRouter` in each region."""

    def __init__(self, twin: RegionsTwin, policy: Pushing, seed: int) -> None:
        super().__init__(twin, policy, seed)
        scenario = twin.scenario
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
        if isinstance(answer, Sent):
            self._send(request, answer, now)
        elif isinstance(answer, HeldForRegion):
            self._twin.outcome.told[f"held: {answer.reason}"] += 1
            self._twin.waiting += 1
            self._held[front][answer.ticket] = request
        else:
            self._twin.outcome.told[f"refused: {answer.reason}"] += 1
            self._twin.outcome.lost += 1

    def _send(self, request: RegionsRequest, sent: Sent, now: float) -> None:
        told = f"{self._names[request.front]} > {sent.region}: {sent.reason}"
        self._twin.outcome.sent[told] += 1
        self._twin.send(request, self._number[sent.region], None, now)

    def _drain(self, front: int, now: float) -> None:
        for ticket, answer in self.traffic[front].released(now=now):
            self._twin.waiting -= 1
            request = self._held[front].pop(ticket)
            if isinstance(answer, Sent):
                self._send(request, answer, now)
            else:
                self._twin.outcome.told[f"refused: {answer.reason}"] += 1
                self._twin.outcome.lost += 1

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

    def heard(self, front: int, seen: RegionSeen, now: float) -> None:
        self.traffic[front].heard(seen, now=now)
        self._drain(front, now)

    def probed(self, front: int, region: int, ok: bool, now: float) -> None:
        traffic, name = self.traffic[front], self._names[region]
        traffic.probed(name, ok, now=now)
        if not ok and not traffic.serves(name, now=now):
            there = [
                request
                for request in self._twin.requests.values()
                if request.front == front and request.region == region
            ]
            for request in there:
                self._twin.give_up(request, now)
        self._drain(front, now)

    def check_invariants(self) -> None:
        super().check_invariants()
        for traffic in self.traffic:
            traffic.check_invariants()


class BalancedSenders:
    """One `EndpointRouter` for each region's users, or for all, over the copies that the policy
    gives it.

    Whether a copy lives it learns at once, which is more than such balancers know.
    """

    def __init__(self, twin: RegionsTwin, policy: Balanced, seed: int) -> None:
        self.room_on_answers = False
        self._twin = twin
        self._region_of = {
            copy: region for region, copies in enumerate(twin.copies_of) for copy in copies
        }
        everyone = tuple(self._region_of)
        self._routers = [
            EndpointRouter(
                routes_of(
                    twin.scenario,
                    everyone if policy.everywhere else copies,
                    strategy=policy.strategy,
                    threshold=policy.threshold or twin.scenario.generation.sequences_max,
                    outstanding_max=policy.outstanding_max,
                ),
                random.Random(f"{seed}/routing/{region}"),
            )
            for region, copies in enumerate(twin.copies_of)
        ]
        self._queues: list[deque[RegionsRequest]] = [deque() for _ in twin.copies_of]
        if policy.together:
            self._routers = self._routers[:1] * len(self._routers)
            self._queues = self._queues[:1] * len(self._queues)

    def ask(self, request: RegionsRequest, now: float) -> None:
        if self._queues[request.front] or not self._sent(request, now):
            self._queues[request.front].append(request)
            self._twin.waiting += 1

    def _sent(self, request: RegionsRequest, now: float) -> bool:
        answer = self._routers[request.front].pick(prompt=request.prompt, now=now)
        if not isinstance(answer, Routed):
            return False
        region = self._region_of[answer.state.copy]
        self._twin.send(request, region, answer.state, now)
        return True

    def back(self, request: RegionsRequest, ok: bool, now: float) -> None:
        assert request.copy is not None, "it was sent to a copy"
        self._routers[request.front].release(request.copy)
        queue = self._queues[request.front]
        while queue and self._sent(queue[0], now):
            queue.popleft()
            self._twin.waiting -= 1

    def place(self, request: RegionsRequest, now: float) -> CopyState | None:
        raise AssertionError("the sender has chosen the copy")

    def leaves(self, attempt: int) -> None:
        """The sender's own count is all there is."""

    def room_of(self, region: int) -> tuple[int, int, int]:
        return 0, 0, 0

    def heard(self, front: int, seen: RegionSeen, now: float) -> None:
        """Nobody listens."""

    def probed(self, front: int, region: int, ok: bool, now: float) -> None:
        """Nobody listens."""

    def set_healthy(self, region: int, copy: int, healthy: bool) -> None:
        for router in self._routers:
            router.set_healthy(copy, healthy)

    def check_invariants(self) -> None:
        for router in self._routers:
            router.check_invariants()
