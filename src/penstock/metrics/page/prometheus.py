"""The page at `/metrics`: Prometheus families over the registry's totals.

Histograms come from the percentile sketches, so a bucket's edge is exact to 1 %. A scrape reads
what `collect` has added up; from the hot path it reads only the number of requests in flight.
Target models have a limited number of rows per variant.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import penstock
from penstock.core.request.mirroring import MIRRORED
from penstock.metrics import item_failures
from penstock.metrics.catalogue import catalogue
from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.catalogue.prometheus_families import (
    MetricPage,
    Row,
    counter,
    durations,
    gauge,
)
from penstock.metrics.counts.recorder import (
    CAPTURE_DROPPED,
    CAPTURE_TAKEN,
    CAPTURE_WRITE_FAILED,
    CAPTURE_WRITTEN_BYTES,
    MICROSECONDS,
)
from penstock.metrics.counts.registry import MetricRegistry, VariantId
from penstock.metrics.counts.totals import VariantTotals
from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.models.model_registry import VariantModels
from penstock.metrics.page.code_families import code_families
from penstock.metrics.page.triton_families import TritonFamilies, VersionOf
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import InstanceSample, normalized

#: last labels of rows, a tuple -> their values
Counts = Mapping[Any, float]

#: (metric, its rows of one target model's counts)
_OF_MODELS: Final[tuple[tuple[PrometheusMetric, Callable[[ModelDelta], Counts]], ...]] = (
    (
        catalogue.MODEL_REQUESTS,
        lambda one: {
            ("ok",): one.answered,
            ("model-error",): one.model_errors,
            ("other-error",): one.other_errors,
        },
    ),
    (catalogue.MODEL_CALLS, lambda one: {("hit",): one.hits, ("miss",): one.misses}),
    (catalogue.MODEL_LOADS, lambda one: {("ok",): one.loads, ("failed",): one.loads_failed}),
    (catalogue.MODEL_UNLOADS, lambda one: _by_label(one.unloads)),
    (catalogue.MODEL_COMPUTE, lambda one: {(): one.run_s}),
    (
        catalogue.MODEL_RESIDENT_TIME,
        lambda one: {
            ("busy",): max(0.0, one.resident_s - one.idle_s),
            ("idle",): one.idle_s,
        },
    ),
    (
        catalogue.MODEL_BYTE_SECONDS,
        lambda one: {("host",): one.byte_s, ("accelerator",): one.accelerator_byte_s},
    ),
)
_DURATIONS: Final = (
    (catalogue.MODEL_WAIT, "wait_us"),
    (catalogue.MODEL_DOWNLOAD, "download_us"),
    (catalogue.MODEL_LOAD, "load_us"),
    (catalogue.MODEL_UNLOAD, "unload_us"),
)

#: (metric, what it counts, whether its rows say why)
_CAPTURES: Final = (
    (catalogue.CAPTURED, CAPTURE_TAKEN, False),
    (catalogue.CAPTURE_DROPPED, CAPTURE_DROPPED, True),
    (catalogue.CAPTURE_BYTES, CAPTURE_WRITTEN_BYTES, False),
    (catalogue.CAPTURE_FAILURES, CAPTURE_WRITE_FAILED, True),
)


def model_families(variants: Mapping[VariantId, VariantModels]) -> Iterator[Metric]:
    """Families of target models, in the order of the catalogue."""
    shown = [
        ((*variant_id, model), delta)
        for variant_id, models in variants.items()
        for model, delta in models.shown.items()
    ]
    for metric, counts in _OF_MODELS:
        rows = (
            ((*labels, *key), count)
            for labels, delta in shown
            for key, count in counts(delta).items()
        )
        yield counter(metric, rows)
    resident = (
        ((*variant_id, model, memory), taken)
        for variant_id, models in variants.items()
        for model, one in models.resident_bytes().items()
        for memory, taken in (("host", one.host_bytes), ("accelerator", one.accelerator_bytes))
    )
    yield gauge(catalogue.MODEL_RESIDENT, resident)
    instances = (
        ((*variant_id, model), count)
        for variant_id, models in variants.items()
        for model, count in models.loaded().items()
    )
    yield gauge(catalogue.MODEL_INSTANCES, instances)
    for metric, name in _DURATIONS:
        took = ((key, getattr(models.total, name)) for key, models in variants.items())
        found = ((key, sketch) for key, sketch in took if sketch is not None)
        yield durations(metric, found, MICROSECONDS)


class PrometheusPage(MetricPage):
    """Renders `/metrics`; one per process."""

    def __init__(
        self,
        registry: MetricRegistry,
        store: MetricStore | None = None,
        *,
        gateway: str = "",
        version_of: VersionOf | None = None,
    ) -> None:
        """
        Args:
            gateway: the label of all rows if this is one process of several; empty: it is not.
            version_of: for the families under Triton's names; None: they are not shown.
        """
        triton = TritonFamilies(registry, version_of) if version_of is not None else None
        collector: Collector = PenstockCollector(registry, store, triton)
        super().__init__(_Labelled(collector, gateway) if gateway else collector)


class _Labelled(Collector):
    """The families of another collector, with the label `gateway` on each row."""

    def __init__(self, collector: Collector, gateway: str) -> None:
        self._collector = collector
        self._gateway = gateway

    def collect(self) -> Iterator[Metric]:
        for family in self._collector.collect():
            family.samples = [
                sample._replace(labels={**sample.labels, "gateway": self._gateway})
                for sample in family.samples
            ]
            yield family


class PenstockCollector(Collector):
    """Families of `catalogue.PROMETHEUS`, in its order, and those under Triton's names."""

    def __init__(
        self,
        registry: MetricRegistry,
        store: MetricStore | None,
        triton: TritonFamilies | None = None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._triton = triton

    def collect(self) -> Iterator[Metric]:
        yield self._counted(catalogue.REQUESTS, lambda one: one.requests)
        yield self._counted(catalogue.REFUSED, lambda one: _by_label(one.refusals))
        yield self._counted(catalogue.EJECTED, lambda one: _by_label(one.ejections))
        yield gauge(catalogue.IN_FLIGHT, self._in_flight())
        yield self._durations(catalogue.DURATION, "total_s")
        yield self._durations(catalogue.QUEUE, "queue_s")
        yield self._durations(catalogue.MODEL, "run_s")
        yield self._batch_rows()
        yield self._durations(catalogue.FIRST_CHUNK, "first_chunk_us", MICROSECONDS)
        yield self._durations(catalogue.FIRST_TOKEN, "first_token_us", MICROSECONDS)
        yield self._durations(catalogue.OUTPUT_TOKEN, "token_us", MICROSECONDS)
        yield self._counted(
            catalogue.TOKENS,
            lambda one: {("in",): one.tokens_in.total, ("out",): one.tokens_out.total},
        )
        yield self._counted(catalogue.STREAMS_BROKEN, lambda one: {(): one.broken})
        for metric, what, by_reason in _CAPTURES:
            yield self._counted(metric, partial(_captures, what=what, by_reason=by_reason))
        yield self._counted(
            catalogue.MIRRORED,
            lambda one: {(): one.mirrors[MIRRORED]} if MIRRORED in one.mirrors else {},
        )
        yield self._counted(
            catalogue.MIRROR_DROPPED,
            lambda one: {(why,): n for why, n in one.mirrors.items() if why != MIRRORED},
        )
        yield self._counted(catalogue.COMPARED, _compared)
        yield gauge(catalogue.COPIES, self._copies())
        yield gauge(catalogue.TIME_TO_READY, self._time_to_ready())
        yield self._measured(
            catalogue.INSTANCE_CPU,
            lambda one: {(): _ratio(normalized(one.cpu_percent, one.cpu_cores))},
        )
        yield self._measured(
            catalogue.INSTANCE_MEMORY, lambda one: {(): _ratio(one.memory_percent)}
        )
        yield self._measured(
            catalogue.SEQUENCES,
            lambda one: {("running",): one.sequences_running, ("waiting",): one.sequences_waiting},
        )
        yield self._measured(
            catalogue.STATEFUL,
            lambda one: {(state,): count for state, count in (one.stateful or {}).items()},
        )
        yield self._measured(catalogue.KV_CACHE, lambda one: {(): _ratio(one.cache_percent)})
        costs = [(variant_id, one.cost) for variant_id, one in self._registry.totals.items()]
        joules = (((*key, source), n) for key, cost in costs for source, n in cost.joules.items())
        yield counter(catalogue.ENERGY, joules)
        yield counter(catalogue.COST, ((key, cost.dollars) for key, cost in costs))
        recent = [(key, cost.recent()) for key, cost in costs]
        for metric, name in catalogue.PER_UNIT:
            each = ((key, getattr(units, name)) for key, units in recent)
            yield gauge(metric, ((key, value) for key, value in each if value is not None))
        yield from model_families(self._registry.models.variants)
        yield self._loop_lag()
        yield gauge(catalogue.LOOP_LAG_MAX, (((name,), seen.max_s) for name, seen in self._lags()))
        if self._store is not None:
            yield from self._registry.work.families()
            yield gauge(catalogue.SERIES, [((), len(self._store))])
            yield gauge(catalogue.SERIES_BYTES, [((), self._store.bytes_used)])
        failures = item_failures.counts().items()
        yield counter(catalogue.ITEM_FAILURES, (((loop,), count) for loop, count in failures))
        yield from code_families(self._registry.instances.values())
        build = InfoMetricFamily(catalogue.BUILD.name, catalogue.BUILD.help)
        build.add_metric([], {"version": penstock.__version__, "python": platform.python_version()})
        yield build
        if self._triton is not None:
            yield from self._triton.collect()

    def _parts(self) -> Iterator[tuple[tuple[str, str], tuple[str, ...], VariantTotals]]:
        """(variant, component, counts) of each component, or of the variant if it has none."""
        for variant_id, totals in self._registry.totals.items():
            parts = self._registry.components.get(variant_id)
            if not parts:
                yield variant_id, (), totals
                continue
            for component, part in parts.items():
                yield variant_id, (component,) if component else (), part

    def _durations(self, metric: PrometheusMetric, name: str, per_s: float = 1.0) -> Metric:
        rows = (((*key, *part), getattr(totals, name)) for key, part, totals in self._parts())
        return durations(metric, rows, per_s)

    def _counted(
        self, metric: PrometheusMetric, counts: Callable[[VariantTotals], Counts]
    ) -> Metric:
        rows = (
            ((*variant_id, *key, *part), count)
            for variant_id, part, totals in self._parts()
            for key, count in counts(totals).items()
        )
        return counter(metric, rows)

    def _measured(
        self,
        metric: PrometheusMetric,
        values: Callable[[InstanceSample], Mapping[Any, float | None]],
    ) -> Metric:
        rows = (
            ((one.endpoint, one.variant, one.instance_id, *key), value)
            for one in self._registry.instances.values()
            for key, value in values(one).items()
            if value is not None
        )
        return gauge(metric, rows)

    def _in_flight(self) -> Iterator[Row]:
        for variant_id, part, _ in self._parts():
            of_components = variant_id in self._registry.components
            component = part[0] if part else ("" if of_components else None)
            yield (*variant_id, *part), self._registry.in_flight(*variant_id, component)

    def _copies(self) -> Iterator[Row]:
        for variant_id, states in self._registry.copies.items():
            components = self._registry.component_copies.get(variant_id)
            if components:
                for component, of_component in components.items():
                    for state, count in of_component.items():
                        yield (*variant_id, state, component), count
                continue
            for state, count in states.items():
                yield (*variant_id, state), count

    def _time_to_ready(self) -> Iterator[Row]:
        for variant_id, parts in self._registry.ready_s.items():
            for (component, part), seconds in parts.items():
                yield (*variant_id, component, part), seconds

    def _lags(self) -> Iterator[tuple[str, LagObserved]]:
        """The lag of each process, by its name."""
        yield self._registry.process, self._registry.loop_lag.seen()
        yield from self._registry.lags.items()
        for sample in self._registry.instances.values():
            if sample.loop_lag is not None:
                yield sample.instance_id, sample.loop_lag

    def _loop_lag(self) -> Metric:
        metric = catalogue.LOOP_LAG
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        edges = [*map(str, metric.edges), "+Inf"]
        for name, seen in self._lags():
            buckets = list(zip(edges, accumulate(seen.counts), strict=True))
            family.add_metric((name,), buckets, seen.total_s)
        return family

    def _batch_rows(self) -> Metric:
        metric = catalogue.BATCH_ROWS
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for variant_id, part, totals in self._parts():
            counts = totals.batch_rows
            buckets = [
                (str(edge), sum(count for rows, count in counts.items() if rows <= edge))
                for edge in metric.edges
            ]
            buckets.append(("+Inf", sum(counts.values())))
            total = sum(rows * count for rows, count in counts.items())
            family.add_metric((*variant_id, *part), buckets, total)
        return family


def _captures(totals: VariantTotals, *, what: str, by_reason: bool) -> Counts:
    """Rows of a metric of data capture; none of a variant that captures nothing."""
    found = {reason: count for (of, reason), count in totals.captures.items() if of == what}
    return {(reason,) if by_reason else (): count for reason, count in found.items()}


def _compared(totals: VariantTotals) -> Counts:
    """Pairs of all rollouts, by outcome."""
    found: Counter[str] = Counter()
    for (_, outcome), count in totals.compared.items():
        found[outcome.partition(":")[0]] += count  # without the code of a scorer's error
    return _by_label(found)


def _by_label(counts: Mapping[str, float]) -> Counts:
    return {(label,): count for label, count in counts.items()}


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
