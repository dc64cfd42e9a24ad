"""Requests that are taken from copies in the twin: from outliers, and from longer queues.

Copies that do not answer are checked: the router decides, by `core.routing.outliers`. An instance
answers a health check at once, unless it hangs. Waiting requests are shared with a copy that came
back, as the live gateway does: `core.routing.rebalance` decides. A copy answers at once, like a
live one over a link without delay, so nothing changes while a request to it is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappush

from penstock.core.routing import CopyState, EndpointRouter
from penstock.core.routing.outliers import LOOK_EVERY_S, Eject, InstanceLooks
from penstock.core.routing.rebalance import Rebalancer
from penstock.sim.copy import OUTLIER_LOOK, Event, SimulatedCopy


class TwinOutliers:
    """The ejection for one endpoint whose copies each have an instance."""

    def __init__(
        self,
        router: EndpointRouter,
        copies: Mapping[int, SimulatedCopy],
        events: list[Event],
        *,
        take_back: Callable[[CopyState, float], None],
        give_back: Callable[[list[int], float], None],
        let_back: Callable[[int, float], None],
    ) -> None:
        """
        Args:
            take_back: sends requests elsewhere that a copy has not begun to answer.
            give_back: the same for requests that left a copy's queue.
            let_back: the router may choose a copy again.
        """
        self.hung: set[int] = set()  #: copies whose instance is stopped
        self.heard: Counter[str] = Counter()  #: number of messages from each instance
        self._router = router
        self._copies = copies
        self._events = events
        self._take_back = take_back
        self._give_back = give_back
        self._let_back = let_back
        self._looking = False
        self._instances: dict[str, InstanceLooks] = {}

    def begin(self, now: float) -> None:
        """Called when a request is sent."""
        if not self._looking and self._router.watched:
            self._looking = True
            heappush(self._events, (now + LOOK_EVERY_S, OUTLIER_LOOK, 0, 0))

    def look(self, now: float) -> None:
        self._looking = False
        awaited = self._router.awaits()
        silent = self._silent(awaited)
        for state, action in self._router.look(silent, now=now):
            if not isinstance(action, Eject):
                self._let_back(state.copy, now)
            elif action.begun:
                self._take_back(state, now)
            else:
                given = self._copies[state.copy].give_back(state.outstanding, now)
                self._give_back(given, now)
        if awaited:
            self.begin(now)

    def _silent(self, awaited: set[str]) -> set[str]:
        before, self._instances = self._instances, {}
        hung = {f"i-{copy}" for copy in self.hung}
        for instance_id in awaited:
            heard = self.heard[instance_id]
            looks = before.get(instance_id) or InstanceLooks(heard)
            self._instances[instance_id] = looks
            if looks.look(heard=heard, waits=True) and instance_id not in hung:
                self.heard[instance_id] += 1
        return {instance_id for instance_id, looks in self._instances.items() if looks.silent}


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
