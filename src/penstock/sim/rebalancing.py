"""Sharing of queues in the twin: takes waiting requests from copies, as the live gateway does.

`core.routing.rebalance` decides. A copy answers at once, like a live one over a link without delay,
so nothing changes while a request to it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.routing import EndpointRouter
from penstock.core.routing.rebalance import Rebalancer
from penstock.sim.copy import SimulatedCopy


class TwinRebalancing:
    """The sharing for one endpoint."""

    def __init__(
        self,
        router: EndpointRouter,
        copies: Mapping[int, SimulatedCopy],
        move: Callable[[int, int, float], None],
    ) -> None:
        """`move(request, copy, now)`: called for a request that left that copy's queue, to route
        it."""
        self._router = router
        self._copies = copies
        self._move = move
        self._machines = {group: Rebalancer() for group in router.groups()}

    def copy_well(self, copy: int, now: float) -> None:
        """A copy came back, and may have less work than others."""
        group = self._router.group_of(copy)
        if group is None:
            return
        machine, loads = self._machines[group], self._router.loads
        asked = machine.changed(loads(group))
        given = [
            (action.copy, self._copies[action.copy].give_back(action.requests, now))
            for action in asked
        ]
        for source, numbers in given:
            for number in numbers:
                self._move(number, source, now)
            assert machine.answered(source, loads(group)) == (), "nothing changed meanwhile"
