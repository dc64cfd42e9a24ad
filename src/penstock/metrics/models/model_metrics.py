"""CloudWatch's metrics of target models: names, dimensions and samples of one window.

AWS has them by EndpointName and VariantName. The same with the dimension TargetModel are ours, of
the models that have series of their own and of `(others)` together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.utilization.instances import NAMESPACE as ENDPOINTS

NAMESPACE: Final = "AWS/SageMaker"
DIMENSION: Final = "TargetModel"

_DURATIONS: Final = (
    ("ModelLoadingWaitTime", "wait_us"),
    ("ModelDownloadingTime", "download_us"),
    ("ModelLoadingTime", "load_us"),
    ("ModelUnloadingTime", "unload_us"),
)

Row = tuple[MetricKey, StatisticSet]


def variant_rows(endpoint: str, variant: str, deltas: Mapping[str, ModelDelta]) -> Iterator[Row]:
    """One window of all its models together."""
    total = ModelDelta()
    for delta in deltas.values():
        total.add(delta)
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    yield from _rows(total, dimensions)


def model_rows(
    endpoint: str, variant: str, deltas: Mapping[str, ModelDelta], loaded: Mapping[str, int]
) -> Iterator[Row]:
    """One window, model by model. `loaded`: on how many instances each is."""
    for model, delta in deltas.items():
        dimensions = {"EndpointName": endpoint, "VariantName": variant, DIMENSION: model}
        yield from _rows(delta, dimensions)
        if delta.ended:
            ones = ones_and_zeros(delta.ended, delta.ended)
            yield metric_key(NAMESPACE, "Invocations", dimensions), ones
            errors = ones_and_zeros(delta.model_errors, delta.ended)
            yield metric_key(NAMESPACE, "InvocationModelErrors", dimensions), errors
        if delta.latency_us is not None:
            key = metric_key(NAMESPACE, "ModelLatency", dimensions, "Microseconds")
            yield key, StatisticSet.from_sketch(delta.latency_us)
        count = StatisticSet.of(loaded.get(model, 0))
        yield metric_key(ENDPOINTS, "LoadedModelCount", dimensions), count


def _rows(delta: ModelDelta, dimensions: dict[str, str]) -> Iterator[Row]:
    if delta.calls:
        key = metric_key(NAMESPACE, "ModelCacheHit", dimensions)
        yield key, ones_and_zeros(delta.hits, delta.calls)
    for name, attribute in _DURATIONS:
        sketch = getattr(delta, attribute)
        if sketch is not None:
            key = metric_key(NAMESPACE, name, dimensions, "Microseconds")
            yield key, StatisticSet.from_sketch(sketch)


def ones_and_zeros(ones: int, samples: int) -> StatisticSet:
    """One sample per request, 1 or 0: Sum counts them, Average is the rate."""
    stats = StatisticSet()
    if ones:
        stats.add(1.0, ones)
    if samples > ones:
        stats.add(0.0, samples - ones)
    return stats
