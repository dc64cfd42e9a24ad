"""The orchestrator's counts of requests, and the explanation of the last ones."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.core.traffic.outcomes import REFUSAL
from penstock.gateway.dispatch.explain import RequestRing
from penstock.gateway.request_id import RequestIds
from penstock.metrics.series.sketch import Sketch
from penstock.orchestrator.passage import Passage

#: Counts for unknown endpoints go under this name, since anybody can invent endpoint names.
_OTHERS: Final = "(none)"


class TrafficRecorder:
    """The records of one orchestrator.

    Attributes:
        requests: (endpoint, region, outcome) -> number of requests; "" = no region.
        again: reason for sending a request again -> number of times.
        took_s: (endpoint, region) -> durations of answers.
        first_byte_s: the same, until the first byte.
    """

    def __init__(self, clock: Clock, ids: RequestIds) -> None:
        self._clock = clock
        #: number and story; the story is bytes, which the garbage collector need not traverse
        self.ring = RequestRing(ids)
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.again: Counter[str] = Counter()
        self.took_s: dict[tuple[str, str], Sketch] = {}
        self.first_byte_s: dict[tuple[str, str], Sketch] = {}

    def sent_again(self, reason: str) -> None:
        """A request left a region without a usable answer."""
        self.again[reason] += 1

    def ended(self, passage: Passage, *, now: float, cancelled: bool) -> None:
        """A request is finished."""
        call, answer = passage.call, passage.answer
        answered = answer is not None and passage.mode != REFUSAL and not cancelled
        region = passage.region if answered else ""
        status = answer.status if answered and answer is not None else 0
        outcome = "cancelled" if cancelled else outcome_of(status)
        endpoint = passage.traffic.name or _OTHERS
        self.requests[endpoint, region, outcome] += 1
        took_s = now - call.received
        if region:
            key = endpoint, region
            self.took_s.setdefault(key, Sketch()).add(took_s)
            if passage.began_at:
                first = self.first_byte_s.setdefault(key, Sketch())
                first.add(max(0.0, passage.began_at - call.received))
        story = orjson.dumps(
            {
                "endpoint": passage.asked.endpoint,
                "operation": passage.asked.operation,
                "status": status or None,
                "outcome": outcome,
                "region": region,
                "region_request_id": passage.region_request_id,
                "received": self._clock.wall() - took_s,
                "total_ms": round(took_s * 1e3, 3),
                "attempts": passage.story,
                "resumed": passage.resumed,
            }
        )
        self.ring.put((call.number, story))

    def explain(self, request_id: str) -> dict[str, Any] | None:
        """Where a request went and why; None if it is unknown, not finished, or too old."""
        found = self.ring.find(request_id)
        if found is None:
            return None
        (_, row), trace = found
        story: dict[str, Any] = orjson.loads(row)
        return {"request_id": request_id} | story | trace


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
