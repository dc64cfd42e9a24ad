"""One window of what was counted, as CloudWatch's series of a variant or of a component.

A component's series come twice, as in SageMaker: by its name alone, and together with its endpoint
and variant. Concurrency is per model (an instance) or per copy: each second has as many samples as
there are instances or copies, so that the average is what one of them has in flight and the sum
what all of them have together.
"""

from __future__ import annotations

from typing import Final

from penstock.metrics.counts.totals import MetricWindow
from penstock.metrics.models.model_metrics import ones_and_zeros
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

NAMESPACE: Final = "AWS/SageMaker"


class PoolSeries:
    """The series of one variant, or of one component."""

    __slots__ = ("_concurrency", "_dimensions", "_per_unit", "_units")

    def __init__(
        self, dimensions: tuple[dict[str, str], ...], concurrency: str, per_unit: str, units: int
    ) -> None:
        """
        Args:
            dimensions: each metric is published with each of them.
            units: instances, or copies, that share the requests.
        """
        self._dimensions = dimensions
        self._concurrency = concurrency
        self._per_unit = per_unit
        self._units = max(1, units)

    def put_concurrency(self, store: MetricStore, window: MetricWindow, now: float) -> None:
        """Each sample at its own second."""
        for dimensions in self._dimensions:
            key = metric_key(NAMESPACE, self._concurrency, dimensions, "None")
            for second, in_flight in sorted(window.concurrency.items()):
                sample = StatisticSet()
                sample.add(in_flight / self._units, self._units)
                store.put(key, second, sample, now=now, high_resolution=True)

    def put(
        self,
        store: MetricStore,
        at: float,
        window: MetricWindow,
        now: float,
        *,
        high_resolution: bool,
    ) -> None:
        """All else that a window has, as points of wall time `at`."""
        for dimensions in self._dimensions:
            for name, unit, stats in _window_metrics(window, self._per_unit):
                key = metric_key(NAMESPACE, name, dimensions, unit)
                store.put(key, at, stats, now=now, high_resolution=high_resolution)


def series_of(pool: tuple[str, str, str], units: int) -> PoolSeries:
    """`pool`: (endpoint, variant, component or "")."""
    endpoint, variant, component = pool
    of_variant = {"EndpointName": endpoint, "VariantName": variant}
    if not component:
        names = ("ConcurrentRequestsPerModel", "InvocationsPerInstance")
        return PoolSeries((of_variant,), *names, units)
    alone = {"InferenceComponentName": component}
    names = ("ConcurrentRequestsPerCopy", "InvocationsPerCopy")
    return PoolSeries((alone, alone | of_variant), *names, units)


def _window_metrics(window: MetricWindow, per_unit: str) -> list[tuple[str, str, StatisticSet]]:
    invocations = window.invocations
    shares = (
        ("Invocation4XXErrors", window.errors_4xx),
        ("Invocation5XXErrors", window.errors_5xx),
        ("InvocationModelErrors", window.model_errors),
        ("NoCapacityInvocationFailures", window.no_capacity),
    )
    streamed = int(window.first_chunk_us.count)
    found = [
        (name, "None", ones_and_zeros(count, max(invocations, count))) for name, count in shares
    ]
    ones = ones_and_zeros(invocations, invocations)
    found.append(("Invocations", "None", ones))
    found.append((per_unit, "None", window.per_unit))
    if streamed:
        broken = ones_and_zeros(window.broken, max(streamed, window.broken))
        found.append(("MidStreamErrors", "None", broken))
    for name, unit, sketch in (
        ("ModelLatency", "Microseconds", window.model_latency_us),
        ("OverheadLatency", "Microseconds", window.overhead_us),
        ("FirstChunkLatency", "Microseconds", window.first_chunk_us),
        ("TimeToFirstToken", "Microseconds", window.first_token_us),
        ("TimePerOutputToken", "Microseconds", window.token_us),
        ("InputTokenCount", "Count", window.tokens_in),
        ("OutputTokenCount", "Count", window.tokens_out),
    ):
        found.append((name, unit, StatisticSet.from_sketch(sketch)))
    return [row for row in found if row[2].count]
