"""A request through the orchestrator as spans: its own, one per region asked, its waits.

Attributes have the gateway's names where they mean the same (`gateway/tracing/tracing.py`).
"""

from __future__ import annotations

import random
from typing import Any, Final, cast

from penstock.clock import Clock
from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.errors import ModelError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.target_dispatcher import STATUS_CANCELLED
from penstock.gateway.http.call import Call
from penstock.gateway.tracing.tracing import (
    CLIENT,
    HELD_S_MIN,
    INTEREST,
    SERVER,
    TRACEPARENT,
    TRACESTATE,
    FollowsTraces,
    SpanExport,
    Traced,
)
from penstock.orchestrator.dispatcher import RegionDispatcher
from penstock.orchestrator.request import Attempt, OrchestratedRequest

_MODEL_FAILED: Final = ModelError.status_default
_STATUS: Final = "status-"


class TracingRegionDispatcher(FollowsTraces, RegionDispatcher):
    """`RegionDispatcher`, with traces.

    If a request is not recorded here, the region is told not to record it either: a trace is
    complete or does not exist.
    """

    begins_unrecorded = True

    def _tell_trace(self, invocation: Invocation, context: TraceContext) -> None:
        call = cast(Call, invocation)
        headers = [(name, value) for name, value in call.headers if name.lower() not in INTEREST]
        headers.append((TRACEPARENT, context.traceparent.encode()))
        if context.state:
            headers.append((TRACESTATE, context.state.encode()))
        call.headers = headers


class TrafficSpans:
    """Implements `Spans` of `gateway/tracing/tracing.py` for one orchestrator."""

    def __init__(self, export: SpanExport, clock: Clock) -> None:
        self._export = export
        self._clock = clock
        self._rng = random.Random()

    def ended(
        self, traced: Traced, invocation: Invocation, *, request_id: str, status: int, now: float
    ) -> None:
        offset_s = self._clock.wall() - self._clock.monotonic()
        asked: OrchestratedRequest = invocation.context
        mine = traced.context
        if asked.cancelled:
            status = STATUS_CANCELLED
        elif invocation.error is None:
            status = asked.status
        attempts = [attempt for attempt in asked.attempts if attempt.sent_at]
        facts = _of_request(asked, attempts, invocation) | {
            "penstock.status": status,
            "penstock.request_id": request_id,
        }
        self._export.span(
            f"{asked.operation} {invocation.endpoint}".strip(), mine.span_id, mine, traced.caller,
            invocation.received + offset_s, now + offset_s, facts, kind=SERVER,
            error=_failure(invocation, status),
        )  # fmt: skip
        for wait in asked.waits:
            if wait.over - wait.begun > HELD_S_MIN:
                self._export.span(
                    "held", trace_context.span_id(self._rng), mine, mine, wait.begun + offset_s,
                    wait.over + offset_s, {"penstock.route.reason": wait.reason},
                )  # fmt: skip
        for attempt, span_id in zip(attempts, traced.attempt_ids, strict=True):
            self._export.span(
                f"region {attempt.region}", span_id, mine, mine,
                attempt.sent_at + offset_s, (attempt.over_at or now) + offset_s,
                _of_attempt(attempt), kind=CLIENT, error=_fault(attempt.outcome),
            )  # fmt: skip


def _failure(invocation: Invocation, status: int) -> str:
    """The error of a server span: set if the fault is not the caller's."""
    if status < 500 and status != _MODEL_FAILED:
        return ""
    error = invocation.error
    return error.code if error is not None else f"{_STATUS}{status}"


def _fault(outcome: str) -> str:
    """The error of a client span: set if it got no answer, or an error."""
    status = outcome.removeprefix(_STATUS)
    if status != outcome:
        return outcome if int(status) >= 400 else ""
    return "" if outcome == "client-gone" else outcome


def _of_request(
    asked: OrchestratedRequest, attempts: list[Attempt], invocation: Invocation
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "penstock.endpoint": invocation.endpoint,
        "penstock.operation": asked.operation,
        "penstock.attempts": len(attempts),
        "penstock.resumed": asked.resumed,
        "penstock.held_ms": _ms(sum(wait.over - wait.begun for wait in asked.waits)),
    }
    if attempts:
        last = attempts[-1]
        facts |= {"penstock.region": last.region, "penstock.route.reason": last.reason}
        if last.began_at:
            facts["penstock.first_byte_ms"] = _ms(last.began_at - invocation.received)
    if invocation.error is not None:
        facts["penstock.error"] = invocation.error.code
    return facts


def _of_attempt(attempt: Attempt) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "penstock.region": attempt.region,
        "penstock.route.reason": attempt.reason,
        "penstock.outcome": attempt.outcome,
    }
    if attempt.first_byte_s is not None:
        facts["penstock.first_byte_ms"] = _ms(attempt.first_byte_s)
    return facts


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
