"""Target models on the page at `/metrics`: a bounded number of rows for each variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import Metric

from penstock.metrics.catalogue import catalogue
from penstock.metrics.catalogue.prometheus_families import Row, counter, durations, gauge
from penstock.metrics.counts.recorder import MICROSECONDS
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.models.variant_models import VariantModels

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
