"""The twin's part of leaving out copies that answer nothing: looks, and takes requests back.

What decides is the router, by `core.routing.outliers`. An instance that is asked whether it lives
says so within the moment, unless it hangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappush

from penstock.core.routing import CopyState, EndpointRouter
from penstock.core.routing.outliers import LOOK_EVERY_S, Eject, InstanceLooks
from penstock.sim.copy import SimulatedCopy
from penstock.sim.events import OUTLIER_LOOK, Event


class TwinOutliers:
    """Of one endpoint, whose copies have an instance each."""

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
            take_back: what a copy has not begun to answer goes elsewhere.
            give_back: the same of requests that left a copy's queue.
            let_back: a copy may be picked again.
        """
        self.hung: set[int] = set()  #: copies whose instance is stopped
        self.heard: Counter[str] = Counter()  #: by instance, how often it said something
        self._router = router
        self._copies = copies
        self._events = events
        self._take_back = take_back
        self._give_back = give_back
        self._let_back = let_back
        self._looking = False
        self._instances: dict[str, InstanceLooks] = {}

    def begin(self, now: float) -> None:
        """A request is sent."""
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
