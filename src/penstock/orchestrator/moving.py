"""The driver of shares that move by themselves: asks `core/traffic/ratios.py`, carries out."""

from __future__ import annotations

from typing import Final

from penstock.clock import Clock
from penstock.core.traffic.ratios import RatioMemory, decide
from penstock.orchestrator.shares import TrafficShares
from penstock.orchestrator.table import TrafficTable

#: How often it is asked; how often shares move is its own to say.
EVERY_S: Final = 0.5


class MovingShares:
    """Of one orchestrator. `move` each `EVERY_S`."""

    def __init__(self, table: TrafficTable, shares: TrafficShares, clock: Clock) -> None:
        self._table = table
        self._shares = shares
        self._monotonic = clock.monotonic
        self._memory: dict[str, RatioMemory] = {}

    def move(self) -> None:
        now = self._monotonic()
        memory, self._memory = self._memory, {}
        for one in self._table.endpoints.values():
            router, spec = one.router, one.router.spec
            closed = [
                region.name
                for region in spec.regions
                if region.name not in one.serving or not router.serves(region.name, now=now)
            ]
            decision = decide(
                spec, one.seen.values(), closed=closed, memory=memory.get(one.name), now=now
            )
            self._memory[one.name] = decision.memory
            one.moving = decision.reason
            if decision.changes:
                reasons = {change.region: change.reason for change in decision.changes}
                self._shares.moved(one, spec.with_ratios(decision.ratios), reasons)
