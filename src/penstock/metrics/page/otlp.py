"""Pushes the metrics of `/metrics` to an OpenTelemetry collector over OTLP.

The families are those of the page, made by the same collector: names, labels and buckets are the
catalogue's, so a dashboard works for both. Counters and histograms are cumulative since the start
of this process. While the collector is away, only the data of that time are lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.clock import Clock

log = logging.getLogger(__name__)

METRICS_PATH: Final = "/v1/metrics"
#: A collector that takes longer for one export counts as away, in s.
EXPORT_S_MAX: Final = 10.0
#: A stopping server waits at most this long for a collector that does not answer, in s.
STOP_S_MAX: Final = 3.0
_SCOPE: Final = "penstock"
_NS: Final = 1e9


class OtlpMetrics:
    """Exports `collector`'s families every `every_s`. `start`, then `stop`, which exports once
    more."""

    def __init__(
        self,
        endpoint: str,
        collector: Collector,
        clock: Clock,
        *,
        every_s: float,
        resource: Mapping[str, str],
    ) -> None:
        """
        Args:
            endpoint: base URL of the collector's OTLP over HTTP.
            resource: attributes of this process, `service.name` among them.

        Raises:
            ImportError: the extra `otel` is not installed.
        """
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

        self._exporter = OTLPMetricExporter(endpoint=endpoint.rstrip("/") + METRICS_PATH)
        self._resource = Resource.create(dict(resource))
        self._collector = collector
        self._clock = clock
        self._every_s = every_s
        self._began = clock.wall()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="otlp-metrics")

    async def stop(self) -> None:
        """Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        await asyncio.to_thread(within, STOP_S_MAX, self._last)

    def _last(self) -> None:
        self._exporter.export(self._data(), EXPORT_S_MAX * 1e3)
        self._exporter.shutdown()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._export()
            except Exception:  # only one round is lost: the next export has all values again
                log.exception("metrics could not be sent")

    async def _export(self) -> None:
        data = self._data()  # on the event loop, because the data belong to it
        await asyncio.to_thread(self._exporter.export, data, EXPORT_S_MAX * 1e3)

    def _data(self) -> Any:
        now = self._clock.wall()
        return metrics_data(self._collector.collect(), self._resource, began=self._began, now=now)


def within(seconds: float, work: Callable[[], object]) -> None:
    """Waits at most `seconds` for `work`, on a thread of its own that no exit waits for."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def metrics_data(families: Iterable[Metric], resource: Any, *, began: float, now: float) -> Any:
    """Prometheus families as OpenTelemetry's metrics; `began`, `now`: wall s."""
    from opentelemetry.sdk.metrics import export as sdk  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    times = int(began * _NS), int(now * _NS)
    found = []
    for family in families:
        data = _data_of(sdk, family, times)
        if data is not None:
            found.append(sdk.Metric(family.name, family.documentation, family.unit, data))
    scope = sdk.ScopeMetrics(InstrumentationScope(_SCOPE), found, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _data_of(sdk: Any, family: Metric, times: tuple[int, int]) -> Any:
    cumulative = sdk.AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        points = _histogram_points(sdk, family, times)
        return sdk.Histogram(points, cumulative) if points else None
    points = [
        sdk.NumberDataPoint(sample.labels, *times, float(sample.value))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    if not points:
        return None
    if family.type == "counter":
        return sdk.Sum(points, cumulative, is_monotonic=True)
    return sdk.Gauge(points)


def _histogram_points(sdk: Any, family: Metric, times: tuple[int, int]) -> list[Any]:
    """Converts buckets: Prometheus counts all below an edge, OpenTelemetry those since the last
    one."""
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        row = rows.setdefault(
            tuple(sorted(labels.items())), {"labels": labels, "buckets": [], "sum": 0.0}
        )
        if sample.name.endswith("_bucket"):
            row["buckets"].append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            row["sum"] = sample.value
    points = []
    for row in rows.values():
        buckets = sorted(row["buckets"])
        counts, below = [], 0.0
        for _, count in buckets:
            counts.append(int(count - below))
            below = count
        edges = [edge for edge, _ in buckets[:-1]]
        points.append(
            sdk.HistogramDataPoint(
                row["labels"], *times, int(below), row["sum"], counts, edges, 0.0, 0.0
            )
        )
    return points
