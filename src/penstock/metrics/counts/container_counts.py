"""The series of each container of a model of several in CloudWatch.

An instance counts (`ContainerDelta`) and reports each second; the reports of all instances of a
variant are added up by windows. The series have SageMaker's names, with the dimension
ContainerName: that is the container's hostname.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.metrics.counts.container_delta import ContainerDelta
from penstock.metrics.counts.totals import WINDOW_S
from penstock.metrics.models.model_registry import ones_and_zeros
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore

_NAMESPACE: Final = "AWS/SageMaker"
_DIMENSION: Final = "ContainerName"


class ContainerRegistry:
    """Part of `MetricRegistry`, which calls it at the right times."""

    def __init__(self, store: MetricStore | None) -> None:
        self._store = store
        #: start -> (endpoint, variant, container) -> counts that are not published yet
        self._windows: dict[int, dict[tuple[str, str, str], ContainerDelta]] = {}

    def add(
        self, endpoint: str, variant: str, told: Mapping[str, Mapping[str, Any]], now: float
    ) -> None:
        """Adds an instance's report of wall second `now`: container -> its delta. Raises what
        `ContainerDelta.from_dict` raises; then nothing was added."""
        deltas = {name: ContainerDelta.from_dict(fields) for name, fields in told.items()}
        window = self._windows.setdefault(int(now) // WINDOW_S * WINDOW_S, {})
        for name, delta in deltas.items():
            window.setdefault((endpoint, variant, name), ContainerDelta()).add(delta)

    def collect(self, before: float) -> None:
        """Publishes the windows that ended at or before wall second `before`."""
        for start in sorted(start for start in self._windows if before >= start + WINDOW_S):
            window = self._windows.pop(start)
            if self._store is None:
                continue
            for place, delta in window.items():
                for key, stats in _rows(place, delta):
                    self._store.put(
                        key, start, stats, now=float(start + WINDOW_S), high_resolution=True
                    )


def _rows(
    place: tuple[str, str, str], delta: ContainerDelta
) -> Iterator[tuple[MetricKey, StatisticSet]]:
    endpoint, variant, name = place
    dimensions = {"EndpointName": endpoint, "VariantName": variant, _DIMENSION: name}
    count = delta.invocations
    for metric, ones in (
        ("Invocations", count),
        ("Invocation4XXErrors", delta.errors_4xx),
        ("Invocation5XXErrors", delta.errors_5xx),
    ):
        yield metric_key(_NAMESPACE, metric, dimensions), ones_and_zeros(ones, count)
    key = metric_key(_NAMESPACE, "ContainerLatency", dimensions, "Microseconds")
    yield key, StatisticSet.from_sketch(delta.latency_us)
