"""Pages at `/metrics`, and their families, made from a catalogue entry and its rows."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.series.sketch import Sketch

Row = tuple[tuple[str, ...], float]


def counter(metric: PrometheusMetric, rows: Iterable[Row]) -> Metric:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def gauge(metric: PrometheusMetric, rows: Iterable[Row]) -> Metric:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def durations(
    metric: PrometheusMetric, rows: Iterable[tuple[tuple[str, ...], Sketch]], per_s: float = 1.0
) -> Metric:
    """`per_s`: how many of the sketch's units make a second."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, sketch in rows:
        buckets = [(str(edge), sketch.count_at_most(edge * per_s)) for edge in metric.edges]
        buckets.append(("+Inf", sketch.count))
        family.add_metric(labels, buckets, sketch.total / per_s)
    return family


class MetricPage:
    """Renders the families of a collector, and those of this process itself."""

    def __init__(self, collector: Collector) -> None:
        self._collectors = CollectorRegistry(auto_describe=False)
        self._collectors.register(collector)
        ProcessCollector(registry=self._collectors)
        GCCollector(registry=self._collectors)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(body, content type), in the format that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._collectors), content_type
