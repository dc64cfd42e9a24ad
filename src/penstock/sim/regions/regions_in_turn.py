"""Senders that see addresses of regions and nothing behind them, as a plain HTTP balancer does."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.deployment.deployment import ROUND_ROBIN
from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.core.traffic import RegionSeen
from penstock.sim.regions.regions_request import RegionsRequest
from penstock.sim.regions.regions_scenario import InTurn, routes_of
from penstock.sim.regions.regions_within import WithinRegions

if TYPE_CHECKING:
    from penstock.sim.regions.regions import RegionsTwin


class InTurnSenders(WithinRegions):
    """For each region's users a balancer that gives every region its turn.

    To its `EndpointRouter` a region is a copy. What exceeds the bound waits at the balancer, in
    order. A region that failed a request is not asked again while another one may be.
    """

    def __init__(self, twin: RegionsTwin, policy: InTurn, seed: int) -> None:
        super().__init__(twin, policy, seed)
        self.room_on_answers = False
        scenario = twin.scenario
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
        self._slots: dict[int, CopyState] = {}  #: attempt -> what its balancer counts
        self._queues: list[deque[RegionsRequest]] = [deque() for _ in scenario.regions]

    def ask(self, request: RegionsRequest, now: float) -> None:
        if self._queues[request.front] or not self._sent(request, now):
            self._queues[request.front].append(request)
            self._twin.waiting += 1

    def _sent(self, request: RegionsRequest, now: float) -> bool:
        answer = self._balancers[request.front].pick(exclude=request.failed, now=now)
        if not isinstance(answer, Routed):
            return False
        region = answer.state.copy
        told = f"{self._names[request.front]} > {self._names[region]}: {answer.reason}"
        self._twin.outcome.sent[told] += 1
        self._twin.send(request, region, None, now)
        self._slots[request.attempt] = answer.state
        return True

    def back(self, request: RegionsRequest, ok: bool, now: float) -> None:
        self._balancers[request.front].release(self._slots.pop(request.attempt))
        queue = self._queues[request.front]
        while queue and self._sent(queue[0], now):
            queue.popleft()
            self._twin.waiting -= 1

    def room_of(self, region: int) -> tuple[int, int, int]:
        return 0, 0, 0

    def heard(self, front: int, seen: RegionSeen, now: float) -> None:
        """Nobody listens."""

    def probed(self, front: int, region: int, ok: bool, now: float) -> None:
        """Nobody listens."""

    def check_invariants(self) -> None:
        super().check_invariants()
        for balancer in self._balancers:
            balancer.check_invariants()
