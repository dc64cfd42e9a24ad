"""Finds copies that answer nothing while others do, as long as requests are in flight.

`core/routing/outliers.py` decides, and the router follows it. This class observes, pings instances
that send nothing, and takes back the requests of an ejected copy. Those are routed like any request
that a copy gave back (`retries.py`): to another copy, within their deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock.clock import Clock
from penstock.core.blame.poison_requests import INSTANCE_SILENT
from penstock.core.routing import CopyState
from penstock.core.routing.outliers import LOOK_EVERY_S, Action, Eject, InstanceLooks
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.link import InstanceLink
from penstock.gateway.timers import TimerHandle, Timers

log = logging.getLogger(__name__)


class OutlierWatch:
    """The watch of one dispatcher. Call `begin` with a request; it stops when nothing is
    awaited."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        endpoints: Mapping[str, Endpoint],
        links: Mapping[str, InstanceLink],
        *,
        take_back: Callable[[Invocation, str], None],
        let_back: Callable[[str], None],
    ) -> None:
        """
        Args:
            take_back: (request, reason): its copy is not to answer it any more.
            let_back: (instance): its copies may be picked again.
        """
        self.timer: TimerHandle | None = None  #: None: nothing is awaited
        self._monotonic = clock.monotonic
        self._timers = timers
        self._endpoints = endpoints
        self._links = links
        self._take_back = take_back
        self._let_back = let_back
        self._instances: dict[str, InstanceLooks] = {}

    def begin(self) -> None:
        self.timer = self._timers.call_at(self._monotonic() + LOOK_EVERY_S, self._look)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def _look(self) -> None:
        self.timer = None
        now = self._monotonic()
        # Endpoints without requests are skipped: of a thousand endpoints few are busy at one
        # moment.
        busy = [one for one in self._endpoints.values() if one.in_flight or one.router.judged]
        awaited: set[str] = set().union(*(one.router.awaits() for one in busy))
        silent = self._silent(awaited)
        for endpoint in busy:
            if endpoint.router.watched:
                for state, action in endpoint.router.look(silent, now=now):
                    self._carry_out(endpoint, state, action)
        if self.timer is None and awaited:
            self.begin()

    def _silent(self, awaited: set[str]) -> set[str]:
        """The awaited instances that send nothing; each of them is pinged."""
        before, self._instances = self._instances, {}
        for instance_id in awaited:
            link = self._links.get(instance_id)
            if link is None or not link.usable:
                continue
            looks = before.get(instance_id) or InstanceLooks(link.heard)
            self._instances[instance_id] = looks
            # While large bodies wait for a slow reader, its silence proves nothing.
            if looks.look(heard=link.heard, waits=not link.paused):
                link.tell({"op": "ping"})
        return {instance_id for instance_id, looks in self._instances.items() if looks.silent}

    def _carry_out(self, endpoint: Endpoint, state: CopyState, action: Action) -> None:
        link = self._links.get(state.instance_id)
        where = f"copy {state.copy} of {endpoint.name} on {state.instance_id}"
        if not isinstance(action, Eject):
            log.warning("%s is sent requests again: %s", where, action.reason)
            self._let_back(state.instance_id)
            return
        log.warning("%s is sent no requests for a while: %s", where, action.reason)
        endpoint.recorders[state.pool].ejected(action.reason)
        if link is None:
            return
        if action.begun:
            for invocation in link.take_back(state.copy):
                self._take_back(invocation, INSTANCE_SILENT)
        else:
            link.tell({"op": "give-back", "copy": state.copy, "count": state.outstanding})
