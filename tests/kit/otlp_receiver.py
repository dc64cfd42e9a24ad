"""A collector of OpenTelemetry: OTLP over HTTP, read with the protocol's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.kit.http_servers import Reply, SeenRequest, answering

pytest.importorskip("opentelemetry.proto", reason="the extra otel is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)


@dataclass(frozen=True)
class SpanSeen:
    """As it was received."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str  #: "" = none
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    failed: str  #: the words of its error status; "" = none
    state: str
    resource: dict[str, Any]


class OtlpReceiver:
    """What was received so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._spans: list[SpanSeen] = []
        self._metrics: dict[str, Any] = {}

    def take(self, path: str, body: bytes) -> None:
        with self._lock:
            if path == "/v1/traces":
                self._spans += _spans(ExportTraceServiceRequest.FromString(body))
            else:
                assert path == "/v1/metrics", path
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for scope in resource.scope_metrics:
                        self._metrics.update({metric.name: metric for metric in scope.metrics})

    @property
    def spans(self) -> list[SpanSeen]:
        with self._lock:
            return list(self._spans)

    def of_request(self, request_id: str) -> dict[str, SpanSeen]:
        """The spans of one request's trace by name, once its own is here; {} before."""
        spans = self.spans
        own = [one for one in spans if one.attributes.get("penstock.request_id") == request_id]
        if not own:
            return {}
        return {one.name: one for one in spans if one.trace_id == own[0].trace_id}

    @property
    def metrics(self) -> dict[str, Any]:
        """The latest of each, by name."""
        with self._lock:
            return dict(self._metrics)


@contextmanager
def receiver() -> Iterator[OtlpReceiver]:
    """A collector on a free port."""

    found = OtlpReceiver("")

    def take(seen: SeenRequest) -> Reply:
        packed = seen.headers.get("content-encoding") == "gzip"
        found.take(seen.path, gzip.decompress(seen.body) if packed else seen.body)
        return 200, {"content-type": "application/x-protobuf"}, b""

    with answering(take) as found.url:
        yield found


def _spans(request: Any) -> Iterator[SpanSeen]:
    for resource in request.resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SpanSeen(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    span.status.message if span.status.code == 2 else "",
                    span.trace_state,
                    about,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
