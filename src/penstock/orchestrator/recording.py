"""The orchestrator's counts of requests, and the explanation of the last ones."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from penstock.clock import Clock
from penstock.core.traffic.outcomes import REFUSAL
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.recording import RequestRing
from penstock.gateway.request_id import RequestIds
from penstock.metrics.series.sketch import Sketch
from penstock.orchestrator.region import Region
from penstock.orchestrator.request import OrchestratedRequest

#: Counts for unknown endpoints go under this name, since anybody can invent endpoint names.
_OTHERS: Final = "(none)"
#: Limit for a region's explanation, in s: a person waits for it.
ASK_S_MAX: Final = 2.0


class TrafficRecorder(RequestRing):
    """The records of one orchestrator.

    A row has number and story; the story is bytes, which the garbage collector need not traverse.

    Attributes:
        requests: (endpoint, region, outcome) -> number of requests; "" = no region.
        again: reason for sending a request again -> number of times.
        took_s: (endpoint, region) -> durations of answers.
        first_byte_s: the same, until the first byte.
    """

    def __init__(self, clock: Clock, ids: RequestIds, regions: Mapping[str, Region]) -> None:
        super().__init__(ids)
        self._clock = clock
        self._regions = regions
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.again: Counter[str] = Counter()
        self.took_s: dict[tuple[str, str], Sketch] = {}
        self.first_byte_s: dict[tuple[str, str], Sketch] = {}

    def sent_again(self, reason: str) -> None:
        """A request left a region without a usable answer."""
        self.again[reason] += 1

    def record(self, invocation: Invocation, status: int, total_s: float) -> None:
        asked: OrchestratedRequest = invocation.context
        seen = asked.mode != REFUSAL and (invocation.error is None or asked.begun)
        status = asked.status if seen and not asked.cancelled else 0
        region = invocation.route.variant if status and invocation.route is not None else ""
        outcome = "cancelled" if asked.cancelled else outcome_of(status)
        endpoint = invocation.entry.name or _OTHERS
        self.requests[endpoint, region, outcome] += 1
        if region:
            key = endpoint, region
            self.took_s.setdefault(key, Sketch()).add(total_s)
            began_at = max(attempt.began_at for attempt in asked.attempts)
            first = self.first_byte_s.setdefault(key, Sketch())
            first.add(max(0.0, began_at - invocation.received))
        story = orjson.dumps(
            {
                "endpoint": invocation.endpoint,
                "operation": asked.operation,
                "status": status or None,
                "outcome": outcome,
                "region": region,
                "region_request_id": asked.region_request_id,
                "received": self._clock.wall() - total_s,
                "total_ms": round(total_s * 1e3, 3),
                "attempts": [attempt.story() for attempt in asked.attempts],
                "resumed": asked.resumed,
            }
        )
        self.put((invocation.number, story))

    async def explain(self, request_id: str) -> dict[str, Any] | None:
        """Where a request went and why, with its region's own explanation; None if it is unknown,
        not finished, or too old."""
        found = self.find(request_id)
        if found is None:
            return None
        (_, row), trace = found
        story: dict[str, Any] = {"request_id": request_id} | orjson.loads(row) | trace
        region = self._regions.get(story["region"])
        if region is None or not story["region_request_id"]:
            return story
        return story | {"in_region": await _explained_by(region, story["region_request_id"])}


async def _explained_by(region: Region, request_id: str) -> dict[str, Any]:
    path = f"/admin/requests/{quote(request_id, safe='')}".encode()
    try:
        answer = await region.fetch(path, timeout_s=ASK_S_MAX)
    except TimeoutError:
        return {"message": f"region {region.name} did not tell in time"}
    with contextlib.suppress(ValueError):
        told: Any = orjson.loads(answer.body) if answer is not None else None
        if isinstance(told, dict):
            return told
    return {"message": f"region {region.name} does not know it any more"}


def outcome_of(status: int) -> str:
    """The outcome in one word, by the HTTP status."""
    if not status:
        return "no-region"
    if status in (429, 503):
        return "refused"
    if status >= 500:
        return "internal-error"
    if status == 424:
        return "model-error"
    return "caller-error" if status >= 400 else "ok"
