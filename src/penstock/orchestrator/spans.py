"""A request through the orchestrator as spans: its own, one per region asked, its waits.

Attributes have the gateway's names where they mean the same (`gateway/tracing/spans.py`).
"""

from __future__ import annotations

import random
from typing import Any, Final

from penstock.clock import Clock
from penstock.core.request import trace_context
from penstock.errors import ModelError
from penstock.gateway.tracing.spans import CLIENT, HELD_S_MIN, SERVER, SpanExport
from penstock.orchestrator.passage import Passage
from penstock.orchestrator.tracing import Attempt, TracedPassage

#: The status for a client that went away, as in the gateway.
CANCELLED_STATUS: Final = 499
_MODEL_FAILED: Final = ModelError.status_default
_STATUS: Final = "status-"


class TrafficSpans:
    """Implements `RegionSpans` of `tracing.py` for one orchestrator."""

    def __init__(self, export: SpanExport, clock: Clock) -> None:
        self._export = export
        self._clock = clock
        self._rng = random.Random()

    def ended(
        self,
        traced: TracedPassage,
        passage: Passage,
        *,
        request_id: str,
        cancelled: bool,
        now: float,
    ) -> None:
        offset_s = self._clock.wall() - self._clock.monotonic()
        asked, mine = passage.asked, traced.context
        status = CANCELLED_STATUS if cancelled else _status_of(traced, passage)
        facts = _of_request(traced, passage, status) | {"penstock.request_id": request_id}
        self._export.span(
            f"{asked.operation} {asked.endpoint}".strip(), mine.span_id, mine, traced.caller,
            passage.call.received + offset_s, now + offset_s, facts, kind=SERVER,
            error=_failure(traced, status),
        )  # fmt: skip
        for wait in traced.waits:
            if wait.over - wait.begun > HELD_S_MIN:
                self._export.span(
                    "held", trace_context.span_id(self._rng), mine, mine, wait.begun + offset_s,
                    wait.over + offset_s, {"penstock.route.reason": wait.reason},
                )  # fmt: skip
        for attempt in traced.attempts:
            self._export.span(
                f"region {attempt.region}", attempt.span_id, mine, mine,
                attempt.sent_at + offset_s, (attempt.over_at or now) + offset_s,
                _of_attempt(attempt), kind=CLIENT, error=_fault(attempt.outcome),
            )  # fmt: skip


def _status_of(traced: TracedPassage, passage: Passage) -> int:
    if traced.error is not None:
        return traced.error.status
    return passage.answer.status if passage.answer is not None else 0


def _failure(traced: TracedPassage, status: int) -> str:
    """The error of a server span: set if the fault is not the caller's."""
    if status < 500 and status != _MODEL_FAILED:
        return ""
    return traced.error.code if traced.error is not None else f"{_STATUS}{status}"


def _fault(outcome: str) -> str:
    """The error of a client span: set if it got no answer, or an error."""
    status = outcome.removeprefix(_STATUS)
    if status != outcome:
        return outcome if int(status) >= 400 else ""
    return "" if outcome == "client-gone" else outcome


def _of_request(traced: TracedPassage, passage: Passage, status: int) -> dict[str, Any]:
    held_s = sum(wait.over - wait.begun for wait in traced.waits)
    facts: dict[str, Any] = {
        "penstock.status": status,
        "penstock.endpoint": passage.asked.endpoint,
        "penstock.operation": passage.asked.operation,
        "penstock.attempts": len(traced.attempts),
        "penstock.resumed": passage.resumed,
        "penstock.held_ms": _ms(held_s),
    }
    if traced.attempts:
        last = traced.attempts[-1]
        facts |= {"penstock.region": last.region, "penstock.route.reason": last.reason}
        if last.began_at:
            facts["penstock.first_byte_ms"] = _ms(last.began_at - passage.call.received)
    if traced.error is not None:
        facts["penstock.error"] = traced.error.code
    return facts


def _of_attempt(attempt: Attempt) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "penstock.region": attempt.region,
        "penstock.route.reason": attempt.reason,
        "penstock.outcome": attempt.outcome,
    }
    if attempt.began_at:
        facts["penstock.first_byte_ms"] = _ms(attempt.began_at - attempt.sent_at)
    return facts


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
