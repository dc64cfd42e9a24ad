"""What happens within the regions of a twin to what senders send to a region, not to a copy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.sim.regions.regions_request import RegionsRequest
from penstock.sim.regions.regions_scenario import InTurn, Pushing, routes_of

if TYPE_CHECKING:
    from penstock.sim.regions.regions import RegionsTwin


class WithinRegions:
    """An `EndpointRouter` in each region, which places what was sent to the region."""

    def __init__(self, twin: RegionsTwin, policy: Pushing | InTurn, seed: int) -> None:
        self._twin = twin
        self.routers = [
            EndpointRouter(
                routes_of(
                    twin.scenario,
                    copies,
                    strategy=policy.strategy,
                    threshold=policy.threshold or twin.scenario.generation.sequences_max,
                ),
                random.Random(f"{seed}/routing/{region}"),
            )
            for region, copies in enumerate(twin.copies_of)
        ]
        self._on_copies: dict[int, tuple[int, CopyState]] = {}  #: attempt -> region, copy

    def place(self, request: RegionsRequest, now: float) -> CopyState | None:
        answer = self.routers[request.region].pick(prompt=request.prompt, now=now)
        if not isinstance(answer, Routed):
            return None
        sequences = self._twin.scenario.generation.sequences_max
        self._twin.outcome.queued += answer.outstanding > sequences
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
