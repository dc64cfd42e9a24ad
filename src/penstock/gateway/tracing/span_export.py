"""Spans to an OpenTelemetry collector over OTLP; a span's id was told to others before it was made.

The library batches and sends on a thread of its own; when the collector is away or slow the oldest
spans are dropped, and no request waits. Whether something is recorded was decided before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.request.trace_context import TraceContext
from penstock.errors import CallerError
from penstock.metrics.page.otlp import STOP_S_MAX, within

TRACES_PATH: Final = "/v1/traces"
_NS: Final = 1e9

#: Kinds of spans, by OpenTelemetry's names.
INTERNAL: Final = "INTERNAL"
SERVER: Final = "SERVER"
CLIENT: Final = "CLIENT"


class SpanExport:
    """Of one process. `close` sends what is left."""

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
            """Ids that were told to others before the span was made."""

            trace_id = 0
            span_id = 0

            def generate_trace_id(self) -> int:
                return self.trace_id

            def generate_span_id(self) -> int:
                return self.span_id

        self._api: Any = trace
        self._root = Context()  #: of spans that nobody is above
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
        """Sends what is left. Blocks for some seconds where the collector does not answer."""
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
        """Hands over one span; never blocks.

        Args:
            trace: any span of the trace.
            parent: None: nobody is above it.
            begun, over: wall s.
            facts: its attributes.
            error: a code; empty: it went well.
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
    """The libraries of the extra are not there."""
    return CallerError(
        "telemetry-not-installed",
        "Traces and metrics are to go to an OTLP endpoint, and OpenTelemetry is not installed.",
        hint="Install penstock[otel], or leave --otlp-endpoint out.",
    )
