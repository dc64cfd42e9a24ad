"""Target models of all variants: hosts' reports go to the store, the page and the cost reports.

CloudWatch's metrics of target models have the dimensions EndpointName and VariantName. The same
metrics with the dimension TargetModel are ours, for the models that have series of their own and
for `(others)` together.

The number of series is limited: the most called models of a variant have series of their own, all
others one together (`OTHERS`). A delta is added to the series that its model has at that moment, so
that no counter ever decreases; a model that loses its own series takes its counter along.

For cost reports an instance is held for a time and has a price; the models on it use memory,
compute time and loads. Both are kept after an instance has ended, up to a limit: then the one that
ended first is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.models.most_called import MostCalled
from penstock.metrics.models.model_delta import OTHERS, ModelDelta
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import InstanceHeld
from penstock.metrics.utilization.instances import NAMESPACE as ENDPOINTS

#: Limit of models, since requests name them; each takes some hundred bytes.
MODELS_MAX: Final = 10_000
INSTANCES_MAX: Final = 1_000


@dataclass(slots=True)
class ModelUse:
    """The use of one model on one instance. Times are summed; `bytes_peak` is a maximum."""

    resident_s: float = 0.0
    resident_byte_s: float = 0.0  #: byte-seconds of the host's memory
    compute_s: float = 0.0  #: time that lanes were busy
    requests: int = 0  #: answered requests
    loads: int = 0
    load_s: float = 0.0
    bytes_peak: int = 0

    def add(self, delta: ModelDelta, host_bytes: int) -> None:
        self.resident_s += delta.resident_s
        self.resident_byte_s += delta.byte_s
        self.compute_s += delta.run_s
        self.requests += delta.answered
        self.loads += delta.loads
        self.load_s += delta.load_us.total / 1e6 if delta.load_us is not None else 0.0
        self.bytes_peak = max(self.bytes_peak, host_bytes)


@dataclass(slots=True)
class _Instance:
    held: InstanceHeld | None = None  #: None: `note` has not named it yet
    held_s: float = 0.0
    models: dict[str, ModelUse] = field(default_factory=dict)


class UsageLedger:
    """The use of all instances of this server."""

    def __init__(self) -> None:
        self._instances: dict[str, _Instance] = {}

    def note(self, held: Sequence[InstanceHeld], elapsed_s: float) -> None:
        """These instances exist now: held for `elapsed_s` since the last note; new ones from now
        on."""
        for one in held:
            known = self._instances.pop(one.instance_id, None) or _Instance()
            known.held_s += one.load_s if known.held is None else elapsed_s
            known.held = one
            # Moved to the end, so that the first is the one that ended first.
            self._instances[one.instance_id] = known
        self._forget_ended({one.instance_id for one in held})
        self._bound(len(held))

    def add(self, instance_id: str, model: str, delta: ModelDelta, host_bytes: int) -> None:
        """Adds a host's report for a model. Its instance may be noted later.

        A name for which nothing was ever loaded is ignored: it may be misspelt.
        """
        if not (host_bytes or delta.loads or delta.answered or delta.resident_s):
            return
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = _Instance()
            self._bound()
        models = instance.models
        if model not in models and len(models) >= MODELS_MAX:
            model = OTHERS
        models.setdefault(model, ModelUse()).add(delta, host_bytes)

    def _forget_ended(self, instance_ids: set[str]) -> None:
        """Forgets ended instances of variants without target models: no row would ever show
        them."""
        hosting = self._hosting()
        for name, one in list(self._instances.items()):
            held = one.held
            if name not in instance_ids and held and (held.endpoint, held.variant) not in hosting:
                del self._instances[name]

    def _hosting(self) -> set[tuple[str, str]]:
        """(endpoint, variant) with target models on any instance."""
        return {
            (one.held.endpoint, one.held.variant)
            for one in self._instances.values()
            if one.held is not None and one.models
        }

    def rows(self) -> list[dict[str, Any]]:
        """JSON-ready: the instances of variants that host target models, and their models."""
        noted = [(one.held, one) for one in self._instances.values() if one.held is not None]
        hosting = self._hosting()
        return [
            {
                "endpoint": held.endpoint,
                "instance_id": held.instance_id,
                "instance_type": held.instance_type,
                "price_per_hour": held.price_per_hour,
                "held_s": one.held_s,
                "cores": held.cores,
                "memory_bytes": held.memory_bytes,
                "models": [{"model": model, **asdict(use)} for model, use in one.models.items()],
            }
            for held, one in noted
            if (held.endpoint, held.variant) in hosting
        ]

    def _bound(self, least: int = 0) -> None:
        while len(self._instances) > max(INSTANCES_MAX, least):
            del self._instances[next(iter(self._instances))]


#: With eight series each, this is a small part of what the metric store holds.
SERIES_MODELS_MAX: Final = 50
#: Length of a window in s, as for all metrics of a variant.
WINDOW_S: Final = 10


class Resident(NamedTuple):
    """One model on one host."""

    host_bytes: int
    accelerator_bytes: int

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Resident | None:
        """As a host reports it with a delta; None: the model is not loaded there."""
        if not fields.get("resident"):
            return None
        return cls(int(fields.get("host_bytes", 0)), int(fields.get("accelerator_bytes", 0)))


class VariantModels:
    """The target models of one variant: their hosts' reports, since the start and by window."""

    def __init__(self) -> None:
        self.total = ModelDelta()  #: the counts of all models since the start
        #: model with series of its own, or OTHERS -> its counts since it has them
        self.shown: dict[str, ModelDelta] = {}
        #: (instance, model) -> what it takes there
        self.resident: dict[tuple[str, str], Resident] = {}
        #: start -> model or OTHERS -> its counts, not yet published
        self.windows: dict[int, dict[str, ModelDelta]] = {}
        self._places = MostCalled(SERIES_MODELS_MAX)

    def add(
        self,
        instance_id: str,
        deltas: Mapping[str, ModelDelta],
        taken: Mapping[str, Resident | None],
        now: float,
    ) -> None:
        """Adds the report of an instance's host at wall second `now`."""
        window = self.windows.setdefault(int(now) // WINDOW_S * WINDOW_S, {})
        for model, delta in deltas.items():
            resident = taken[model]
            if resident is not None:
                self.resident[instance_id, model] = resident
            else:
                self.resident.pop((instance_id, model), None)
            gone = self._places.called(model, _weight(delta), now=now)
            if gone is not None:
                self.shown.pop(gone, None)
            shown = self.shown_as(model)
            self.total.add(delta)
            self.shown.setdefault(shown, ModelDelta()).add(delta)
            window.setdefault(shown, ModelDelta()).add(delta)

    def shown_as(self, model: str) -> str:
        """The model itself if it has series of its own, else OTHERS."""
        return model if self._places.has_place(model) else OTHERS

    def take_due(self, before: float) -> list[tuple[int, dict[str, ModelDelta]]]:
        """Removes and returns the windows that ended at or before wall second `before`."""
        due = sorted(start for start in self.windows if before >= start + WINDOW_S)
        return [(start, self.windows.pop(start)) for start in due]

    def loaded(self) -> dict[str, int]:
        """Model with series of its own, or OTHERS -> number of instances that have it loaded."""
        found: dict[str, int] = {}
        for _, model in self.resident:
            shown = self.shown_as(model)
            found[shown] = found.get(shown, 0) + 1
        return found

    def resident_bytes(self) -> dict[str, Resident]:
        """Model with series of its own, or OTHERS -> what it takes on all instances together."""
        found: dict[str, Resident] = {}
        for (_, model), taken in self.resident.items():
            shown = self.shown_as(model)
            before = found.get(shown, Resident(0, 0))
            found[shown] = Resident(
                before.host_bytes + taken.host_bytes,
                before.accelerator_bytes + taken.accelerator_bytes,
            )
        return found

    def keep_instances(self, instance_ids: Collection[str]) -> None:
        """Says which instances exist; what was loaded on others is gone."""
        for key in [key for key in self.resident if key[0] not in instance_ids]:
            del self.resident[key]


def _weight(delta: ModelDelta) -> int:
    """Its weight among the most called models. A model counts from its first call, before it is
    loaded, because it has the wait of that call. A name for which no model exists does not
    count."""
    if delta.loads_failed and not delta.answered:
        return 0
    return delta.calls + delta.loads


NAMESPACE: Final = "AWS/SageMaker"
DIMENSION: Final = "TargetModel"

_DURATIONS: Final = (
    ("ModelLoadingWaitTime", "wait_us"),
    ("ModelDownloadingTime", "download_us"),
    ("ModelLoadingTime", "load_us"),
    ("ModelUnloadingTime", "unload_us"),
)

Row = tuple[MetricKey, StatisticSet]


def _variant_rows(endpoint: str, variant: str, deltas: Mapping[str, ModelDelta]) -> Iterator[Row]:
    """One window of all models of a variant together."""
    total = ModelDelta()
    for delta in deltas.values():
        total.add(delta)
    yield from _rows(total, {"EndpointName": endpoint, "VariantName": variant})


def _model_rows(
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
        models = VariantModels()
        if known:
            models = self.variants.setdefault(variant_id, models)
        models.add(instance_id, deltas, taken, now)
        if not known:
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
            for key, stats in _variant_rows(*variant_id, window):
                self._store.put(key, start, stats, now=now, high_resolution=True)
            # A minute is fine enough for so many series, and keeps the history long.
            for key, stats in _model_rows(*variant_id, window, models.loaded()):
                self._store.put(key, start, stats, now=now)
