"""Families on the page under Triton's names, one row per model, for dashboards made for Triton.

A model is an endpoint, `ENDPOINT:COMPONENT` or `ENDPOINT:TARGET_MODEL`, as at the door of the Open
Inference Protocol; a multi-model endpoint has the rows of its models instead of its own. Variants
are summed. Counts are of all versions together, under the one that a request without a version
gets. All values come from what is counted already; a value that is not known has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from penstock.metrics.catalogue import triton_catalogue as triton
from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.counts.inference_counts import InferenceCounts
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.utilization.instances import CacheCounts

#: (endpoint, component or "") -> the version that requests get; None: no such model is published
VersionOf = Callable[[str, str], str | None]
_US: Final = 1e6
_Model = tuple[str, str]  #: (endpoint, component or "")


class TritonFamilies:
    """Makes the families of one registry."""

    def __init__(self, registry: MetricRegistry, version_of: VersionOf) -> None:
        self._registry = registry
        self._version_of = version_of

    def collect(self) -> Iterator[Metric]:
        families = {one.name: _family(one) for one in triton.PROMETHEUS}
        for (endpoint, component), counts in self._counts().items():
            version = self._version_of(endpoint, component)
            if version is None:
                continue
            labels = {"model": _named(endpoint, component), "version": version}
            _add_counts(families, labels, counts, counts.inferences, counts.executions)
            waiting = self._waiting(endpoint, component)
            families[triton.PENDING.name].add_sample(triton.PENDING.name, labels, waiting)
            load_s = self._load_s(endpoint, component)
            if load_s is not None:
                families[triton.LOAD_S.name].add_sample(triton.LOAD_S.name, labels, load_s)
            cache = self._registry.cache_counts(endpoint, component)
            if cache is not None:
                _add_cache(families, labels, cache)
        for (endpoint, _), models in self._registry.models.variants.items():
            for model, delta in models.shown.items():
                labels = {"model": _named(endpoint, model), "version": "1"}
                _add_target(families, labels, delta)
        yield from families.values()

    def _counts(self) -> dict[_Model, InferenceCounts]:
        found: dict[_Model, InferenceCounts] = {}
        for variant_id, totals in self._registry.totals.items():
            if variant_id in self._registry.models.variants:
                continue
            parts = self._registry.components.get(variant_id) or {"": totals}
            for component, part in parts.items():
                model = variant_id[0], component
                found.setdefault(model, InferenceCounts()).add(part)
        return found

    def _waiting(self, endpoint: str, component: str) -> int:
        return sum(
            copy.queue_rows
            for sample in self._registry.instances.values()
            if sample.endpoint == endpoint
            for copy in sample.copies
            if copy.component == component
        )

    def _load_s(self, endpoint: str, component: str) -> float | None:
        found = (
            parts.get((component or variant, "load"))
            for (of, variant), parts in self._registry.ready_s.items()
            if of == endpoint
        )
        return max((seconds for seconds in found if seconds is not None), default=None)


def _named(endpoint: str, model: str) -> str:
    return f"{endpoint}:{model}" if model else endpoint


def _family(metric: PrometheusMetric) -> Metric:
    return Metric(metric.name, metric.help, metric.kind)


def _add_counts(
    families: dict[str, Metric],
    labels: dict[str, str],
    counts: InferenceCounts,
    inferences: int,
    executions: int,
) -> None:
    values = (
        (triton.SUCCESS, counts.succeeded),
        (triton.COUNT, inferences),
        (triton.EXECUTIONS, executions),
        (triton.REQUEST_US, round(counts.succeeded_s * _US)),
        (triton.QUEUE_US, round(counts.queue_s * _US)),
        (triton.INPUT_US, 0),
        (triton.INFER_US, round(counts.run_s * _US)),
        (triton.OUTPUT_US, 0),
    )
    for metric, value in values:
        families[metric.name].add_sample(metric.name, labels, value)
    name = triton.FAILURE.name
    for reason, count in counts.failed.items():
        families[name].add_sample(name, {**labels, "reason": reason}, count)


def _add_cache(families: dict[str, Metric], labels: dict[str, str], cache: CacheCounts) -> None:
    values = (
        (triton.HITS, cache.hits),
        (triton.MISSES, cache.misses),
        (triton.HIT_US, round(cache.hit_s * _US)),
        (triton.MISS_US, round(cache.miss_s * _US)),
    )
    for metric, value in values:
        families[metric.name].add_sample(metric.name, labels, value)


def _add_target(families: dict[str, Metric], labels: dict[str, str], delta: ModelDelta) -> None:
    counts = InferenceCounts(
        succeeded=delta.answered, queue_s=delta.queue_s, run_s=delta.model_s,
        succeeded_s=delta.latency_us.total / _US if delta.latency_us is not None else 0.0,
    )  # fmt: skip
    counts.failed["BACKEND"] = delta.model_errors
    counts.failed["OTHER"] = delta.other_errors
    _add_counts(families, labels, counts, round(delta.inferences), round(delta.executions))
    if delta.cache_hits or delta.cache_misses:
        _add_cache(families, labels, CacheCounts(delta.cache_hits, delta.cache_misses))
