"""A forwarder that also follows traces: which regions were asked, why, and where the time went.

It is used only if traces are exported; else a client's `traceparent` goes to the region unread. A
recorded request has a span of its own and one for each attempt. A region gets the attempt's span as
the parent of its gateway's. If a request is not recorded here, the region is told not to record it
either: a trace is complete or does not exist.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.errors import PenstockError
from penstock.gateway.http.call import Call
from penstock.gateway.request_id import RequestIds
from penstock.gateway.tracing.tracing import INTEREST, TRACEPARENT, TRACESTATE, caller_of
from penstock.orchestrator.asked import OrchestratedRequest
from penstock.orchestrator.forwarder import Forwarder
from penstock.orchestrator.passage import Passage

log = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]

_REPLACED: Final = frozenset(INTEREST)


@dataclass(slots=True)
class Attempt:
    """A request at one region. Times are monotonic s."""

    span_id: int
    region: str
    reason: str  #: why this region was chosen
    sent_at: float
    began_at: float = 0.0  #: time of the answer's first byte; 0 = there was none
    over_at: float = 0.0  #: time when it ended; 0 = it is under way
    outcome: str = ""  #: its outcome, as in `explain`


class Wait(NamedTuple):
    """A time during which the request was held here. Monotonic s."""

    begun: float
    over: float
    reason: str


@dataclass(slots=True)
class TracedPassage:
    """One recorded request that is under way."""

    context: TraceContext  #: the request's own span
    caller: TraceContext | None  #: the caller's span; None: the trace begins here
    attempts: list[Attempt] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    held_at: float = 0.0  #: when it began to be held; 0 = it is not held
    held_reason: str = ""
    #: the orchestrator's error that the client got; None: it got none
    error: PenstockError | None = None

    def held(self, reason: str, now: float) -> None:
        """It waits for a region with room."""
        if not self.held_at:
            self.held_at, self.held_reason = now, reason

    def sent(self, attempt: Attempt) -> TraceContext:
        """It is sent to a region; returns the span that the region gets."""
        self._waited(attempt.sent_at)
        self.attempts.append(attempt)
        own = self.context
        return TraceContext(own.trace_id, attempt.span_id, own.sampled, own.state)

    def left(self, outcome: str, began_at: float, now: float) -> None:
        """It no longer holds a slot or a place in the queue."""
        self._waited(now)
        if self.attempts and not self.attempts[-1].over_at:
            last = self.attempts[-1]
            last.outcome, last.began_at, last.over_at = outcome, began_at, now

    def _waited(self, now: float) -> None:
        if self.held_at:
            self.waits.append(Wait(self.held_at, now, self.held_reason))
            self.held_at = 0.0


class RegionSpans(Protocol):
    """Turns a finished request into spans."""

    def ended(
        self,
        traced: TracedPassage,
        passage: Passage,
        *,
        request_id: str,
        cancelled: bool,
        now: float,
    ) -> None:
        """Its last byte left at monotonic `now`, or its client went away. Must not block."""


class TracingForwarder(Forwarder):
    """`Forwarder`, with traces."""

    interest = INTEREST

    def __init__(
        self, spans: RegionSpans, *, share: float, rng: random.Random, ids: RequestIds, **parts: Any
    ) -> None:
        """
        Args:
            share: the share, 0 to 1, of requests to record whose caller does not decide it.
            parts: arguments of `Forwarder`.
        """
        super().__init__(**parts)
        self._spans = spans
        self._share = share
        self._rng = rng
        self._ids = ids
        self._traced: dict[int, TracedPassage] = {}  #: request number -> the recorded request

    def take(self, call: Call, asked: OrchestratedRequest) -> None:
        caller = caller_of(call.rare)
        context = trace_context.begin(caller, share=self._share, rng=self._rng)
        if context is None:
            context = trace_context.unrecorded(self._rng)
        if context.sampled:
            self._traced[call.number] = TracedPassage(context, caller)
        else:
            call.headers = _telling(call.headers, context)
        super().take(call, asked)

    def route(self, passage: Passage) -> None:
        super().route(passage)
        traced = self._traced.get(passage.call.number)
        if traced is not None and passage.ticket:
            traced.held(passage.route, self._monotonic())

    def _ask(self, passage: Passage, now: float) -> None:
        call = passage.call
        traced = self._traced.get(call.number)
        if traced is not None:
            span_id = trace_context.span_id(self._rng)
            told = traced.sent(Attempt(span_id, passage.region, passage.route, now))
            call.headers = _telling(call.headers, told)
        super()._ask(passage, now)

    def let_go(self, passage: Passage, *, ok: bool | None, outcome: str) -> None:
        traced = self._traced.get(passage.call.number)
        if traced is not None:
            traced.left(outcome, passage.began_at, self._monotonic())
        super().let_go(passage, ok=ok, outcome=outcome)

    def fail(self, passage: Passage, error: PenstockError) -> None:
        traced = self._traced.get(passage.call.number)
        if traced is not None:
            traced.error = error
        super().fail(passage, error)

    def _over(self, call: Call, *, cancelled: bool) -> None:
        super()._over(call, cancelled=cancelled)
        traced = self._traced.pop(call.number, None)
        if traced is None:
            return
        self._recorder.ring.traced(call.number, traced.context.trace_id)
        request_id = self._ids.text(call.number)
        try:
            self._spans.ended(
                traced,
                call.context,
                request_id=request_id,
                cancelled=cancelled,
                now=self._monotonic(),
            )
        except Exception:  # an error in its spans must not cost the request
            log.exception("the spans of request %s are lost", request_id)


def _telling(headers: Headers, context: TraceContext) -> Headers:
    """A request's headers, with this trace in place of any other."""
    told = [(name, value) for name, value in headers if name.lower() not in _REPLACED]
    told.append((TRACEPARENT, context.traceparent.encode()))
    if context.state:
        told.append((TRACESTATE, context.state.encode()))
    return told
