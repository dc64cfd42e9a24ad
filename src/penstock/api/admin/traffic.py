"""GET /penstock/v1/traffic: what this region can take now, as server-sent events.

For an orchestrator that sends work only where there is room. The first event reports every
endpoint, later ones those that changed, at most every 100 ms. One event comes each second in any
case, so that silence shows a fault.

    data: {"accepting": true, "endpoints": {"echo": {"room": 14, "waiting": 0, "in_flight": 2,
           "copies": 1, "capacity_rps": 950.0, "cache_tokens": 0, "p50_s": 0.001, "p99_s": 0.004,
           "error_share": 0.0}}}

`served_names` are an endpoint's other names, where it has any. A deleted endpoint is null.
`accepting` is false once the server drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from penstock.clock import Clock
from penstock.errors import NotNowError
from penstock.metrics.counts.recent import RecentObserved, RecentRequests

PATH: Final = "/penstock/v1/traffic"
CHANGES_EVERY_S: Final = 0.1
ALIVE_EVERY_S: Final = 1.0
#: An orchestrator has one stream open, perhaps two while it is replaced; more are a mistake or
#: worse.
READERS_MAX: Final = 16


class EndpointLoads(Protocol):
    """What the endpoints can take now (`gateway/traffic_loads.py`)."""

    @property
    def accepting(self) -> bool: ...

    def all(self) -> dict[str, dict[str, Any]]: ...


class TrafficFeed:
    """The events for all readers, computed once."""

    def __init__(self, loads: EndpointLoads, recent: RecentRequests, clock: Clock) -> None:
        self._loads = loads
        self._recent = recent
        self._monotonic = clock.monotonic
        self._seen: dict[str, RecentObserved] = {}
        self._looked_at = float("-inf")
        self._told_at = float("-inf")
        self._state: dict[str, dict[str, Any]] = {}
        self._readers = 0

    def routes(self) -> list[Route]:
        return [Route(PATH, self._page, methods=["GET"])]

    def state(self) -> Mapping[str, dict[str, Any]]:
        """Endpoint -> its load, at most 100 ms old."""
        now = self._monotonic()
        if now < self._told_at + CHANGES_EVERY_S / 2:
            return self._state
        self._told_at = now
        loads = self._loads.all()
        if now >= self._looked_at + ALIVE_EVERY_S:
            self._looked_at = now
            for name in self._seen.keys() - loads.keys():
                self._recent.forget(name)
            self._seen = {name: self._recent.look(name, now=now) for name in loads}
        none = RecentObserved()
        self._state = {
            name: load | self._seen.get(name, none)._asdict() for name, load in loads.items()
        }
        return self._state

    async def _page(self, _request: Request) -> Response:
        if self._readers >= READERS_MAX:
            raise NotNowError(
                "traffic-readers-too-many",
                f"{READERS_MAX} readers follow this region's traffic already.",
                hint="Stop an orchestrator that is no longer needed.",
            )
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        self._readers += 1
        told: Mapping[str, dict[str, Any]] = {}
        accepting: bool | None = None
        told_at = float("-inf")
        try:
            while True:
                state = self.state()
                changes = changed(told, state)
                now, still = self._monotonic(), self._loads.accepting
                if changes or still != accepting or now >= told_at + ALIVE_EVERY_S:
                    told, accepting, told_at = state, still, now
                    fields = {"accepting": still, "endpoints": changes}
                    yield b"data: %b\n\n" % orjson.dumps(fields)
                await asyncio.sleep(CHANGES_EVERY_S)
        finally:
            self._readers -= 1


def changed(
    before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any] | None]:
    """The endpoints whose loads changed; None for those that are gone."""
    changes: dict[str, dict[str, Any] | None] = {
        name: load for name, load in after.items() if before.get(name) != load
    }
    for name in before.keys() - after.keys():
        changes[name] = None
    return changes
