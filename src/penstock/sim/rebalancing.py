"""The twin's part of sharing queues: asks copies for what waits, as the live gateway does.

What decides is `core.routing.rebalance`. A copy answers within the moment, as one does whose link
takes no time; so there is never a question under way when something changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.routing import EndpointRouter
from penstock.core.routing.rebalance import Rebalancer
from penstock.sim.copy import SimulatedCopy


class TwinRebalancing:
    """Of one endpoint."""

    def __init__(
        self,
        router: EndpointRouter,
        copies: Mapping[int, SimulatedCopy],
        move: Callable[[int, int, float], None],
    ) -> None:
        """`move(request, copy, now)`: it left the queue of that copy, and is routed again."""
        self._router = router
        self._copies = copies
        self._move = move
        self._machines = {group: Rebalancer() for group in router.groups()}

    def copy_well(self, copy: int, now: float) -> None:
        """It came back: it may have less to do than others."""
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
