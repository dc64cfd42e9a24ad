"""Dispatchers that also follow traces of requests.

They are used only if traces are exported; else requests know nothing of traces. A recorded request
gets a span of its own and one for each target that it is sent to. The target is told of that one:
the span for the model's run, or the parent of a region's own spans. The finished request is passed
to the exporter once its last byte has left. `core/request/trace_context.py` decides whether a
request is recorded.

A finished request as spans, and their export to an OpenTelemetry collector over OTLP.

The gateway knows enough once a request is over: when it came, when it was sent, how long the
instance says that it waited and ran, when its first part came. The instance's own spans (calls
between the models of an artifact) come with the answer (`wire/span_notes.py`). They are placed from
the moment at which the request was sent, so the time on the way there counts as waiting.

Attributes have the names of OpenTelemetry's semantic conventions where these have one, else
`penstock.*`.

The library batches and sends on a thread of its own. If the collector is away or slow, the oldest
spans are dropped, and no request waits. `tracing.py` decides before whether a request is recorded.
A span's id may have been sent to others before the span is made.
"""

from __future__ import annotations

import contextlib
import logging
import random
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.clock import Clock
from penstock.core.request import trace_context
from penstock.core.request.trace_context import TraceContext
from penstock.core.routing import Routed
from penstock.distribution import install_command
from penstock.errors import CallerError, ModelError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import ANSWERED, Invocation
from penstock.gateway.dispatch.target_dispatcher import TargetDispatcher
from penstock.metrics.page.otlp import STOP_S_MAX, within
from penstock.wire import frames
from penstock.wire.frames import BATCH_REASONS, FrameError, decode_reply_meta
from penstock.wire.span_notes import read_told

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


TRACES_PATH: Final = "/v1/traces"
_NS: Final = 1e9

#: Kinds of spans, with OpenTelemetry's names.
INTERNAL: Final = "INTERNAL"
SERVER: Final = "SERVER"
CLIENT: Final = "CLIENT"


class SpanExport:
    """The export of one process. `close` sends what is buffered."""

    def __init__(self, endpoint: str, *, resource: Mapping[str, str]) -> None:
        """
        Args:
            endpoint: base URL of the collector's OTLP over HTTP.
            resource: attributes of this process, `service.name` among them.

        Raises:
            CallerError: `telemetry-not-installed`.
        """
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra, seldom wanted
            from opentelemetry.context import Context  # noqa: PLC0415
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
            from opentelemetry.sdk.trace.id_generator import IdGenerator  # noqa: PLC0415
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON  # noqa: PLC0415
        except ImportError as missing:
            raise not_installed() from missing

        class GivenIds(IdGenerator):
            """Ids that were sent to others before the span was made."""

            trace_id = 0
            span_id = 0

            def generate_trace_id(self) -> int:
                return self.trace_id

            def generate_span_id(self) -> int:
                return self.span_id

        self._api: Any = trace
        self._root = Context()  #: the context of spans without a parent
        self._ids = GivenIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(dict(resource)),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        url = endpoint.rstrip("/") + TRACES_PATH
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        self._tracer = self._provider.get_tracer("penstock")

    def close(self) -> None:
        """Sends what is buffered. Blocks for some seconds if the collector does not answer."""
        within(STOP_S_MAX, self._provider.shutdown)

    def span(
        self,
        name: str,
        span_id: int,
        trace: TraceContext,
        parent: TraceContext | None,
        begun: float,
        over: float,
        facts: Mapping[str, Any],
        *,
        kind: str = INTERNAL,
        error: str = "",
    ) -> None:
        """Exports one span; never blocks.

        Args:
            trace: any span of the trace.
            parent: None: the span has no parent.
            begun, over: wall s.
            facts: its attributes.
            error: an error code; empty: no error.
        """
        api = self._api
        context = self._root
        if parent is not None:
            told = api.SpanContext(
                trace.trace_id,
                parent.span_id,
                is_remote=True,
                trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
                trace_state=api.TraceState.from_header([trace.state]) if trace.state else None,
            )
            context = api.set_span_in_context(api.NonRecordingSpan(told), self._root)
        self._ids.trace_id, self._ids.span_id = trace.trace_id, span_id
        span = self._tracer.start_span(
            name,
            context=context,
            kind=api.SpanKind[kind],
            attributes={**facts, "error.type": error} if error else facts,
            start_time=int(begun * _NS),
        )
        if error:
            span.set_status(api.Status(api.StatusCode.ERROR, error))
        span.end(end_time=int(max(begun, over) * _NS))


def not_installed() -> CallerError:
    """The libraries of the extra are not installed."""
    return CallerError(
        "telemetry-not-installed",
        "Traces and metrics are to go to an OTLP endpoint, and OpenTelemetry is not installed.",
        hint=f"Leave --otlp-endpoint out, or install it: {install_command('otel')}",
    )


#: A request that waited for a copy for longer than this gets a span for it, in s.
HELD_S_MIN: Final = 0.001


class OtlpSpans:
    """Implements `gateway.tracing.tracing.Spans` for one process."""

    def __init__(self, export: SpanExport, clock: Clock) -> None:
        self._export = export
        self._clock = clock
        self._rng = random.Random()

    def ended(
        self, traced: Traced, invocation: Invocation, *, request_id: str, status: int, now: float
    ) -> None:
        offset_s = self._clock.wall() - self._clock.monotonic()
        mine = traced.context
        name = f"{invocation.door} {invocation.endpoint}"
        self._export.span(
            name, mine.span_id, mine, traced.caller, invocation.received + offset_s,
            now + offset_s, _of_request(invocation, request_id, status), kind=SERVER,
            error=_failure(invocation, status),
        )  # fmt: skip
        sent_at = traced.sent_at
        if not sent_at:
            return
        sent = sent_at + offset_s
        if sent_at - invocation.received > HELD_S_MIN:
            self._inner("held", traced, invocation.received + offset_s, sent, {})
        reply = invocation.reply
        if reply is not None:
            begun = sent + reply.queue_us * 1e-6
            over = begun + reply.run_us * 1e-6
            self._inner("queue", traced, sent, begun, {})
            reason = reply.reason
            known = BATCH_REASONS[reason] if reason < len(BATCH_REASONS) else "unknown"
            facts = {
                "penstock.batch.rows": reply.batch_rows,
                "penstock.batch.reason": known,
                "penstock.lane": reply.lane,
            }
            self._inner("run", traced, begun, over, facts, span_id=traced.run_id)
            self._of_instance(traced, reply.meta, sent)
        stream = invocation.stream
        if stream is not None and stream.first_at:
            facts = {"penstock.stream.chunks": stream.chunks}
            self._inner("stream", traced, stream.first_at + offset_s, now + offset_s, facts)

    def _of_instance(self, traced: Traced, meta: bytes, sent: float) -> None:
        try:
            told = decode_reply_meta(meta).spans
            rows = read_told(told) if told else ()
        except FrameError as error:
            log.error("%s", error.message)
            return
        mine = traced.context
        for row in rows:
            begun = sent + row.start_us * 1e-6
            parent = TraceContext(mine.trace_id, row.parent_id, sampled=True)
            self._export.span(
                row.name, row.span_id, mine, parent, begun, begun + row.duration_us * 1e-6, {},
                error=row.error,
            )  # fmt: skip

    def _inner(
        self,
        name: str,
        traced: Traced,
        begun: float,
        over: float,
        facts: Mapping[str, Any],
        *,
        span_id: int = 0,
    ) -> None:
        """A span inside the request. `span_id`: the id that others know already; 0 = none."""
        mine = traced.context
        own = span_id or trace_context.span_id(self._rng)
        self._export.span(name, own, mine, mine, begun, over, facts)


def _failure(invocation: Invocation, status: int) -> str:
    """The error of a server span: set if the fault is the model's or ours, not the caller's."""
    error = invocation.error
    failed = error is not None and (status >= 500 or isinstance(error, ModelError))
    return error.code if failed and error is not None else ""


def _of_request(invocation: Invocation, request_id: str, status: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "penstock.status": status,
        "penstock.request_id": request_id,
        "penstock.endpoint": invocation.endpoint,
        "penstock.door": invocation.door,
        "penstock.attempts": invocation.attempts,
    }
    route = invocation.route
    if route is not None:
        facts |= {
            "penstock.variant": route.variant,
            "penstock.copy": route.state.copy,
            "penstock.instance.id": route.state.instance_id,
            "penstock.route.reason": route.reason,
        }
    affinity = invocation.affinity
    if affinity is not None and affinity.model is not None:
        facts["penstock.target_model"] = affinity.model
    if affinity is not None and affinity.component is not None:
        facts["penstock.component"] = affinity.component
    stream = invocation.stream
    if stream is not None and (stream.tokens_in or stream.tokens_out):
        facts["gen_ai.usage.input_tokens"] = stream.tokens_in
        facts["gen_ai.usage.output_tokens"] = stream.tokens_out
    if invocation.error is not None:
        facts["penstock.error"] = invocation.error.code
    return facts
