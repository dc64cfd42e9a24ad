"""Dispatchers that also follow traces of requests.

They are used only if traces are exported; else requests know nothing of traces. A recorded request
gets a span of its own and one for each target that it is sent to. The target is told of that one:
the span for the model's run, or the parent of a region's own spans. The finished request is passed
to the exporter once its last byte has left. `core/request/trace_context.py` decides whether a
request is recorded.
"""

from __future__ import annotations

import contextlib
import logging
import random
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.core.routing import Routed
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import ANSWERED, Invocation
from penstock.gateway.dispatch.target_dispatcher import TargetDispatcher
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
    run_id: int = 0  #: id of the last attempt's span; 0 = it was never sent
    sent_at: float = 0.0  #: when it was sent last; 0 = never
    attempt_ids: list[int] = field(default_factory=list)  #: ids of the spans of all attempts


class Spans(Protocol):
    """Turns a finished request into spans."""

    def ended(
        self, traced: Traced, invocation: Invocation, *, request_id: str, status: int, now: float
    ) -> None:
        """Its last byte left at monotonic `now`. Must not block."""


class FollowsTraces(TargetDispatcher):
    """A dispatcher with traces; put it before the dispatcher among the base classes."""

    interest = INTEREST
    #: whether a target is told of a trace that nobody began, so that it records none of its own
    begins_unrecorded = False

    def __init__(
        self, spans: Spans, *, share: float, trace_rng: random.Random, **parts: Any
    ) -> None:
        """
        Args:
            share: the share, 0 to 1, of requests to record whose caller does not decide it.
            parts: arguments of the dispatcher.
        """
        super().__init__(**parts)
        self._spans = spans
        self._share = share
        self._trace_rng = trace_rng
        self._traced: dict[int, Traced] = {}  #: request number -> the recorded request

    @abstractmethod
    def _tell_trace(self, invocation: Invocation, context: TraceContext) -> None:
        """Puts a trace, in place of any other, into what the target gets."""

    def invoke(self, invocation: Invocation) -> None:
        if not invocation.number:
            invocation.number = self.ids.next()
        caller = caller_of(invocation.rare)
        context = trace_context.begin(caller, share=self._share, rng=self._trace_rng)
        if context is None and self.begins_unrecorded:
            context = trace_context.unrecorded(self._trace_rng)
        if context is not None and context.sampled:
            self._traced[invocation.number] = Traced(context, caller)
        elif context is not None:
            self._tell_trace(invocation, context)
        super().invoke(invocation)  # type: ignore[safe-super]  # the next base has it

    def _send(self, invocation: Invocation, route: Routed, deadline: float, now: float) -> None:
        traced = self._traced.get(invocation.number)
        if traced is not None:
            own = traced.context
            traced.sent_at, traced.run_id = now, trace_context.span_id(self._trace_rng)
            traced.attempt_ids.append(traced.run_id)
            told = TraceContext(own.trace_id, traced.run_id, own.sampled, own.state)
            self._tell_trace(invocation, told)
        super()._send(invocation, route, deadline, now)  # type: ignore[safe-super]  # the same

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


class TracingDispatcher(FollowsTraces, Dispatcher):
    """`Dispatcher`, with traces."""

    def _tell_trace(self, invocation: Invocation, context: TraceContext) -> None:
        fields = frames.decode_request_meta(invocation.meta)
        with contextlib.suppress(frames.FrameError):  # the meta has no room for it
            invocation.meta = frames.encode_request_meta(
                fields._replace(traceparent=context.traceparent, tracestate=context.state or None)
            )


def caller_of(headers: Mapping[bytes, bytes] | None) -> TraceContext | None:
    """The caller's trace, from the headers of `INTEREST`; None: it sent none."""
    if headers is None or TRACEPARENT not in headers:
        return None
    return trace_context.read(
        headers[TRACEPARENT].decode("latin-1"), headers.get(TRACESTATE, b"").decode("latin-1")
    )
