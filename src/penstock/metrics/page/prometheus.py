"""The page at `/metrics`: Prometheus families over the registry's totals.

Histograms come from the percentile sketches, so a bucket's edge is exact to 1 %. A scrape reads
what `collect` has added up; from the hot path it reads only the number of requests in flight.
Target models have a limited number of rows per variant.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import penstock
from penstock.metrics import item_failures
from penstock.metrics.catalogue import catalogue
from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.catalogue.prometheus_families import Row, counter, durations, gauge
from penstock.metrics.counts.recorder import MICROSECONDS
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.totals import VariantTotals
from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.models.variant_models import VariantModels
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import normalized

Variants = Mapping[tuple[str, str], VariantModels]

_DURATIONS: Final = (
    (catalogue.MODEL_WAIT, "wait_us"),
    (catalogue.MODEL_DOWNLOAD, "download_us"),
    (catalogue.MODEL_LOAD, "load_us"),
    (catalogue.MODEL_UNLOAD, "unload_us"),
)


def model_families(variants: Variants) -> Iterator[Metric]:
    yield counter(catalogue.MODEL_REQUESTS, _requests(variants))
    yield counter(catalogue.MODEL_CALLS, _calls(variants))
    yield counter(catalogue.MODEL_LOADS, _loads(variants))
    yield counter(catalogue.MODEL_UNLOADS, _unloads(variants))
    shown = list(_shown(variants))
    yield counter(catalogue.MODEL_COMPUTE, ((labels, delta.run_s) for labels, delta in shown))
    yield counter(catalogue.MODEL_RESIDENT_TIME, _resident_time(variants))
    yield counter(catalogue.MODEL_BYTE_SECONDS, _byte_seconds(variants))
    yield gauge(catalogue.MODEL_RESIDENT, _resident(variants))
    yield gauge(catalogue.MODEL_INSTANCES, _instances(variants))
    for metric, name in _DURATIONS:
        rows = ((key, getattr(models.total, name)) for key, models in variants.items())
        found = ((key, sketch) for key, sketch in rows if sketch is not None)
        yield durations(metric, found, MICROSECONDS)


def _shown(variants: Variants) -> Iterator[tuple[tuple[str, str, str], ModelDelta]]:
    for (endpoint, variant), models in variants.items():
        for model, delta in models.shown.items():
            yield (endpoint, variant, model), delta


def _requests(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        yield (*labels, "ok"), delta.answered
        yield (*labels, "model-error"), delta.model_errors
        yield (*labels, "other-error"), delta.other_errors


def _calls(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        yield (*labels, "hit"), delta.hits
        yield (*labels, "miss"), delta.misses


def _loads(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        yield (*labels, "ok"), delta.loads
        yield (*labels, "failed"), delta.loads_failed


def _unloads(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        for reason, count in delta.unloads.items():
            yield (*labels, reason), count


def _resident_time(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        yield (*labels, "busy"), max(0.0, delta.resident_s - delta.idle_s)
        yield (*labels, "idle"), delta.idle_s


def _byte_seconds(variants: Variants) -> Iterator[Row]:
    for labels, delta in _shown(variants):
        yield (*labels, "host"), delta.byte_s
        yield (*labels, "accelerator"), delta.accelerator_byte_s


def _resident(variants: Variants) -> Iterator[Row]:
    for (endpoint, variant), models in variants.items():
        for model, taken in models.resident_bytes().items():
            yield (endpoint, variant, model, "host"), taken.host_bytes
            yield (endpoint, variant, model, "accelerator"), taken.accelerator_bytes


def _instances(variants: Variants) -> Iterator[Row]:
    for (endpoint, variant), models in variants.items():
        for model, count in models.loaded().items():
            yield (endpoint, variant, model), count


class PrometheusPage:
    """Renders `/metrics`; one per process."""

    def __init__(
        self, registry: MetricRegistry, store: MetricStore | None = None, *, gateway: str = ""
    ) -> None:
        """`gateway`: the label of all rows if this is one process of several; empty: it is not."""
        self._collectors = CollectorRegistry(auto_describe=False)
        collector: Collector = PenstockCollector(registry, store)
        self._collectors.register(_Labelled(collector, gateway) if gateway else collector)
        ProcessCollector(registry=self._collectors)
        GCCollector(registry=self._collectors)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(body, content type), in the format that the Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._collectors), content_type


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
    """Families of `catalogue.PROMETHEUS`, in its order."""

    def __init__(self, registry: MetricRegistry, store: MetricStore | None) -> None:
        self._registry = registry
        self._store = store

    def collect(self) -> Iterator[Metric]:
        yield counter(catalogue.REQUESTS, self._requests())
        yield counter(catalogue.REFUSED, self._refusals())
        yield counter(catalogue.EJECTED, self._ejections())
        yield gauge(catalogue.IN_FLIGHT, self._in_flight())
        yield self._durations(catalogue.DURATION, "total_s")
        yield self._durations(catalogue.QUEUE, "queue_s")
        yield self._durations(catalogue.MODEL, "run_s")
        yield self._batch_rows()
        yield self._durations(catalogue.FIRST_CHUNK, "first_chunk_us", MICROSECONDS)
        yield self._durations(catalogue.FIRST_TOKEN, "first_token_us", MICROSECONDS)
        yield self._durations(catalogue.OUTPUT_TOKEN, "token_us", MICROSECONDS)
        yield counter(catalogue.TOKENS, self._tokens())
        yield counter(catalogue.STREAMS_BROKEN, self._streams_broken())
        yield gauge(catalogue.COPIES, self._copies())
        yield gauge(catalogue.TIME_TO_READY, self._time_to_ready())
        yield gauge(catalogue.INSTANCE_CPU, self._instance_cpu())
        yield gauge(catalogue.INSTANCE_MEMORY, self._instance_memory())
        yield gauge(catalogue.SEQUENCES, self._sequences())
        yield gauge(catalogue.KV_CACHE, self._kv_cache())
        yield counter(catalogue.ENERGY, self._energy())
        yield counter(catalogue.COST, self._cost())
        for metric, name in catalogue.PER_UNIT:
            yield gauge(metric, self._per_unit(name))
        yield from model_families(self._registry.models.variants)
        yield self._loop_lag()
        yield gauge(catalogue.LOOP_LAG_MAX, (((name,), seen.max_s) for name, seen in self._lags()))
        if self._store is not None:
            yield from self._registry.work.families()
            yield gauge(catalogue.SERIES, [((), len(self._store))])
            yield gauge(catalogue.SERIES_BYTES, [((), self._store.bytes_used)])
        failures = item_failures.counts().items()
        yield counter(catalogue.ITEM_FAILURES, (((loop,), count) for loop, count in failures))
        build = InfoMetricFamily(catalogue.BUILD.name, catalogue.BUILD.help)
        build.add_metric([], {"version": penstock.__version__, "python": platform.python_version()})
        yield build

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

    def _requests(self) -> Iterator[Row]:
        for variant_id, part, totals in self._parts():
            for (door, outcome), count in totals.requests.items():
                yield (*variant_id, door, outcome, *part), count

    def _refusals(self) -> Iterator[Row]:
        for variant_id, part, totals in self._parts():
            for reason, count in totals.refusals.items():
                yield (*variant_id, reason, *part), count

    def _ejections(self) -> Iterator[Row]:
        for variant_id, part, totals in self._parts():
            for reason, count in totals.ejections.items():
                yield (*variant_id, reason, *part), count

    def _tokens(self) -> Iterator[Row]:
        for variant_id, part, totals in self._parts():
            yield (*variant_id, "in", *part), totals.tokens_in.total
            yield (*variant_id, "out", *part), totals.tokens_out.total

    def _streams_broken(self) -> Iterator[Row]:
        for variant_id, part, totals in self._parts():
            yield (*variant_id, *part), totals.broken

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

    def _instance_cpu(self) -> Iterator[Row]:
        for sample in self._registry.instances.values():
            percent = normalized(sample.cpu_percent, sample.cpu_cores)
            if percent is not None:
                yield (sample.endpoint, sample.variant, sample.instance_id), percent / 100

    def _instance_memory(self) -> Iterator[Row]:
        for sample in self._registry.instances.values():
            if sample.memory_percent is not None:
                labels = (sample.endpoint, sample.variant, sample.instance_id)
                yield labels, sample.memory_percent / 100

    def _sequences(self) -> Iterator[Row]:
        for sample in self._registry.instances.values():
            labels = (sample.endpoint, sample.variant, sample.instance_id)
            for state, count in (
                ("running", sample.sequences_running),
                ("waiting", sample.sequences_waiting),
            ):
                if count is not None:
                    yield (*labels, state), count

    def _kv_cache(self) -> Iterator[Row]:
        for sample in self._registry.instances.values():
            if sample.cache_percent is not None:
                labels = (sample.endpoint, sample.variant, sample.instance_id)
                yield labels, sample.cache_percent / 100

    def _energy(self) -> Iterator[Row]:
        for variant_id, totals in self._registry.totals.items():
            for source, joules in totals.cost.joules.items():
                yield (*variant_id, source), joules

    def _cost(self) -> Iterator[Row]:
        for variant_id, totals in self._registry.totals.items():
            yield variant_id, totals.cost.dollars

    def _per_unit(self, name: str) -> Iterator[Row]:
        for variant_id, totals in self._registry.totals.items():
            value: float | None = getattr(totals.cost.recent(), name)
            if value is not None:
                yield variant_id, value

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
