"""OpenTelemetry for one process: its requests' traces, and metrics that are pushed.

Without an endpoint in the settings, nothing of this is created: the plain dispatcher, or an
orchestrator's own, has no tracing.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import socket
from typing import Any

from prometheus_client.registry import Collector

import penstock
from penstock.clock import Clock
from penstock.config import TelemetryConfig
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.tracing.tracing import OtlpSpans, SpanExport, TracingDispatcher, not_installed
from penstock.metrics.page.otlp import OtlpMetrics


class Telemetry:
    """What a process exports, if anything. `close` sends the rest."""

    def __init__(self, config: TelemetryConfig, clock: Clock, *, process: str = "gateway") -> None:
        """
        Args:
            process: its name among the processes of the same server.

        Raises:
            CallerError: `telemetry-not-installed`.
        """
        self._config = config
        self._clock = clock
        self._resource = {
            "service.name": config.service_name,
            "service.version": penstock.__version__,
            "service.instance.id": f"{socket.gethostname()}/{process}/{os.getpid()}",
            "process.runtime.version": platform.python_version(),
        }
        #: exporter of spans; None if there is no endpoint for them
        self.export: SpanExport | None = None
        self._metrics: OtlpMetrics | None = None
        if config.otlp_endpoint:
            self.export = SpanExport(config.otlp_endpoint, resource=self._resource)

    @property
    def trace_share(self) -> float:
        """Share of the requests to record, 0 to 1, where the caller does not decide."""
        return self._config.trace_share

    def dispatcher(self, **parts: Any) -> Dispatcher:
        """A dispatcher with tracing, or the plain one; `parts` as `Dispatcher` takes them."""
        if self.export is None:
            return Dispatcher(**parts)
        spans = OtlpSpans(self.export, self._clock)
        return TracingDispatcher(spans, share=self.trace_share, trace_rng=random.Random(), **parts)

    def push_metrics(self, collector: Collector) -> None:
        """Starts pushing, if it is configured; for the process with the totals of all processes."""
        config = self._config
        if not config.otlp_endpoint or not config.metrics_every_s:
            return
        try:
            self._metrics = OtlpMetrics(
                config.otlp_endpoint,
                collector,
                self._clock,
                every_s=config.metrics_every_s,
                resource=self._resource,
            )
        except ImportError as missing:
            raise not_installed() from missing
        self._metrics.start()

    async def close(self) -> None:
        """Sends the rest. Idempotent."""
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            await metrics.stop()
        export, self.export = self.export, None
        if export is not None:
            await asyncio.to_thread(export.close)
