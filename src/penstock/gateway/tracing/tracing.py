"""A dispatcher that also follows traces of requests.

It is used only if traces are exported; else requests know nothing of traces. It gives each traced
request a span of its own, sends the instance the id of the span for the model's run, and passes the
finished request to the exporter once its last byte has left. `core/request/trace_context.py`
decides whether a request is recorded.
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
    """One recorded request that is under way. Times are monotonic s."""

    context: TraceContext  #: the request's own span
    caller: TraceContext | None  #: the caller's span; None: the trace begins here
    run_id: int  #: id of the span for the model's run
    sent_at: float = 0.0  #: when it was sent to the last copy; 0 = never


class Spans(Protocol):
    """Turns a finished request into spans."""

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
            share: the share, 0 to 1, of requests to record whose caller does not decide it.
            parts: arguments of `Dispatcher`.
        """
        super().__init__(**parts)
        self._spans = spans
        self._share = share
        self._trace_rng = trace_rng
        self._traced: dict[int, Traced] = {}  #: request number -> the recorded request

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
        except Exception:  # a bad value in an instance's spans must not stop the loop
            log.exception("the spans of request %s are lost", self.ids.text(number))


def caller_of(headers: Mapping[bytes, bytes] | None) -> TraceContext | None:
    """The caller's trace, from the headers of `INTEREST`; None: it sent none."""
    if headers is None or TRACEPARENT not in headers:
        return None
    return trace_context.read(
        headers[TRACEPARENT].decode("latin-1"), headers.get(TRACESTATE, b"").decode("latin-1")
    )


def _with_context(meta: bytes, context: TraceContext) -> bytes:
    """The meta for the instance with the trace added; unchanged if it has no field for it."""
    fields = frames.decode_request_meta(meta)
    try:
        return frames.encode_request_meta(
            fields._replace(traceparent=context.traceparent, tracestate=context.state or None)
        )
    except frames.FrameError:
        return meta
