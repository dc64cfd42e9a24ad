"""Target models of all variants: hosts' reports go to the store, the page and the cost reports.

CloudWatch's metrics of target models have the dimensions EndpointName and VariantName. The same
metrics with the dimension TargetModel are ours, for the models that have series of their own and
for `(others)` together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.models.usage import UsageLedger
from penstock.metrics.models.variant_models import WINDOW_S, Resident, VariantModels
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
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
    """One window of all models of a variant together."""
    total = ModelDelta()
    for delta in deltas.values():
        total.add(delta)
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    yield from _rows(total, dimensions)


def model_rows(
    endpoint: str, variant: str, deltas: Mapping[str, ModelDelta], loaded: Mapping[str, int]
) -> Iterator[Row]:
    """One window, model by model. `loaded`: model -> number of instances that have it loaded."""
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
    """One sample per request, 1 or 0: the Sum counts the ones, the Average is their rate."""
    stats = StatisticSet()
    if ones:
        stats.add(1.0, ones)
    if samples > ones:
        stats.add(0.0, samples - ones)
    return stats


VariantId = tuple[str, str]  #: (endpoint, variant)


class ModelRegistry:
    """Part of `MetricRegistry`, which calls it at the right times."""

    def __init__(self, store: MetricStore | None) -> None:
        self._store = store
        self.variants: dict[VariantId, VariantModels] = {}
        self.usage = UsageLedger()  #: for cost reports

    def add(
        self,
        variant_id: VariantId,
        instance_id: str,
        told: dict[str, dict[str, Any]],
        *,
        now: float,
        known: bool,
    ) -> None:
        """Adds a host's report of wall time `now`: model -> its delta. Each delta comes once.

        `known`: the variant exists. For a removed variant the last report is published, and nothing
        else of it is kept. Raises what `ModelDelta.from_dict` raises; then nothing was added.
        """
        deltas = {model: ModelDelta.from_dict(fields) for model, fields in told.items()}
        taken = {model: Resident.from_dict(fields) for model, fields in told.items()}
        for model, delta in deltas.items():
            resident = taken[model]
            host_bytes = resident.host_bytes if resident is not None else 0
            self.usage.add(instance_id, model, delta, host_bytes)
        if known:
            models = self.variants.setdefault(variant_id, VariantModels())
            models.add(instance_id, deltas, taken, now)
            return
        models = VariantModels()
        models.add(instance_id, deltas, taken, now)
        self._publish(variant_id, models, math.inf)

    def collect(self, before: float) -> None:
        """Publishes the windows that ended at or before wall second `before`."""
        for variant_id, models in self.variants.items():
            self._publish(variant_id, models, before)

    def remove(self, variant_id: VariantId) -> None:
        models = self.variants.pop(variant_id, None)
        if models is not None:
            self._publish(variant_id, models, math.inf)

    def keep_instances(self, instance_ids: Collection[str]) -> None:
        """Says which instances exist; what was loaded on others is gone."""
        for models in self.variants.values():
            models.keep_instances(instance_ids)

    def _publish(self, variant_id: VariantId, models: VariantModels, before: float) -> None:
        for start, window in models.take_due(before):
            if self._store is None:
                continue
            now = float(start + WINDOW_S)
            for key, stats in variant_rows(*variant_id, window):
                self._store.put(key, start, stats, now=now, high_resolution=True)
            # A minute is fine enough for so many series, and keeps the history long.
            for key, stats in model_rows(*variant_id, window, models.loaded()):
                self._store.put(key, start, stats, now=now)
