"""A dispatcher that also follows traces: who asked, where the time went, and who is told.

Only where traces are exported is this class used: without it a request does not know of them. It
gives each traced request a span of its own, tells the instance of the span that the model's run
will be, and hands what is known of the request to the exporter once its last byte has left.
Whether a request is recorded is `core.trace_context`'s decision.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.core.routing import Routed
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import ANSWERED, Invocation
from penstock.wire import frames

log = logging.getLogger(__name__)

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"
INTEREST: Final = (TRACEPARENT, TRACESTATE)


@dataclass(slots=True)
class Traced:
    """One recorded request on its way. Times are monotonic s."""

    context: TraceContext  #: of its own span
    caller: TraceContext | None  #: None: the trace begins here
    run_id: int  #: of the span that the model's run will be
    sent_at: float = 0.0  #: to the last copy; 0 = it never was


class Spans(Protocol):
    """Where what is known of a request becomes spans."""

    def ended(
        self, traced: Traced, invocation: Invocation, *, request_id: str, status: int, now: float
    ) -> None:
        """Its last byte left at monotonic `now`. Must not block."""


class TracingDispatcher(Dispatcher):
    """`Dispatcher`, with traces."""

    interest = INTEREST

    def __init__(
        self, spans: Spans, *, share: float, trace_rng: random.Random, **parts: Any
    ) -> None:
        """
        Args:
            share: of requests whose caller says nothing that are recorded, 0 to 1.
            parts: `Dispatcher`'s.
        """
        super().__init__(**parts)
        self._spans = spans
        self._share = share
        self._trace_rng = trace_rng
        self._traced: dict[int, Traced] = {}  #: by number of the request

    def invoke(self, invocation: Invocation) -> None:
        if not invocation.number:
            invocation.number = self.ids.next()
        self._begin(invocation)
        super().invoke(invocation)

    def _begin(self, invocation: Invocation) -> None:
        caller = caller_of(invocation.rare)
        context = trace_context.begin(caller, share=self._share, rng=self._trace_rng)
        if context is None:
            return
        run_id = trace_context.span_id(self._trace_rng) if context.sampled else context.span_id
        told = TraceContext(context.trace_id, run_id, context.sampled, context.state)
        invocation.meta = _with_context(invocation.meta, told)
        if context.sampled:
            self._traced[invocation.number] = Traced(context, caller, run_id)

    def _send(self, invocation: Invocation, route: Routed, deadline: float, now: float) -> None:
        traced = self._traced.get(invocation.number)
        if traced is not None:
            traced.sent_at = now
        super()._send(invocation, route, deadline, now)

    def written(self, invocation: Invocation, status: int = 200) -> None:
        ends = invocation.state == ANSWERED
        super().written(invocation, status)
        traced = self._traced.pop(invocation.number, None) if ends else None
        if traced is None:
            return
        number = invocation.number
        self.ring.traced(number, traced.context.trace_id)
        error = invocation.error
        try:
            self._spans.ended(
                traced,
                invocation,
                request_id=self.ids.text(number),
                status=status if error is None else error.status,
                now=self.clock.monotonic(),
            )
        except Exception:  # what an instance said of its spans must not cost the loop
            log.exception("the spans of request %s are lost", self.ids.text(number))


def caller_of(headers: Mapping[bytes, bytes] | None) -> TraceContext | None:
    """The trace that a request is part of, by the headers of `INTEREST` that it has."""
    if headers is None or TRACEPARENT not in headers:
        return None
    return trace_context.read(
        headers[TRACEPARENT].decode("latin-1"), headers.get(TRACESTATE, b"").decode("latin-1")
    )


def _with_context(meta: bytes, context: TraceContext) -> bytes:
    """What the instance is told, with the trace; a meta that has no room stays as it is."""
    fields = frames.decode_request_meta(meta)
    try:
        return frames.encode_request_meta(
            fields._replace(traceparent=context.traceparent, tracestate=context.state or None)
        )
    except frames.FrameError:
        return meta
