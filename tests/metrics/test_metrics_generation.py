"""Streamed and generated answers: what is published of them, under which names and units."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.counts.recorder import VariantRecorder
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import InstanceSample

T0 = 1_700_000_000
VARIANT = {"EndpointName": "shop", "VariantName": "main"}


def generated(recorder: VariantRecorder, *, streams: bool = True) -> None:
    """5 tokens in, 11 out; the first 0.5 s after the request, each further one 0.02 s after."""
    recorder.started()
    recorder.finished(200, 0.7, 0.1, 0.5, 2, "openai")
    if streams:
        recorder.streamed(0.5)
    recorder.generated(5, 11, 0.5, 0.02)


def published(store: MetricStore, name: str) -> StatisticSet:
    metric = metric_key("AWS/SageMaker", name, VARIANT).metric
    [stats] = store.read_merged(metric, T0, T0 + 60, 10).values()
    return stats


def samples(registry: MetricRegistry) -> dict[tuple[str, str], float]:
    """(name, its last label) -> value, of the page."""
    body, _ = PrometheusPage(registry).render()
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            label = sample.labels.get("direction", sample.labels.get("le", ""))
            found[sample.name, label] = sample.value
    return found


def test_times_are_microseconds_and_tokens_counts_in_the_cloudwatch_api() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    generated(recorder)
    generated(recorder, streams=False)
    registry.collect(T0)
    registry.collect(T0 + 10)
    names = (
        "FirstChunkLatency", "TimeToFirstToken", "TimePerOutputToken", "InputTokenCount",
        "OutputTokenCount",
    )  # fmt: skip
    assert [(published(store, name).count, published(store, name).total) for name in names] == [
        (1, pytest.approx(500_000)),
        (2, pytest.approx(1_000_000)),
        (2, pytest.approx(40_000)),
        (2, 10),
        (2, 22),
    ]


def test_a_broken_stream_is_one_among_those_that_began() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    recorder = registry.recorder("shop", "main")
    for breaks in (False, False, True):
        generated(recorder)
        if breaks:
            recorder.broken()
    registry.collect(T0)
    registry.collect(T0 + 10)
    errors = published(store, "MidStreamErrors")
    assert (errors.count, errors.total) == (3, 1)
    assert samples(registry)["penstock_streams_broken_total", ""] == 1


def test_prometheus_shows_seconds_and_tokens_by_direction() -> None:
    registry = MetricRegistry()
    generated(registry.recorder("shop", "main"))
    registry.collect(T0)
    page = samples(registry)
    assert page["penstock_tokens_total", "in"] == 5
    assert page["penstock_tokens_total", "out"] == 11
    first, token = "penstock_time_to_first_token_seconds", "penstock_time_per_output_token_seconds"
    assert page[f"{first}_sum", ""] == pytest.approx(0.5)
    assert (page[f"{first}_bucket", "0.25"], page[f"{first}_bucket", "1.0"]) == (0, 1)
    assert page[f"{token}_sum", ""] == pytest.approx(0.02)
    assert page["penstock_time_to_first_chunk_seconds_count", ""] == 1


def test_a_time_that_is_not_known_is_left_out_and_the_tokens_are_counted() -> None:
    registry = MetricRegistry()
    registry.recorder("shop", "main").generated(5, 1, 0.0, 0.0)
    registry.collect(T0)
    totals = registry.totals["shop", "main"]
    assert (totals.first_token_us.count, totals.token_us.count) == (0, 0)
    assert (totals.tokens_in.total, totals.tokens_out.total) == (5, 1)


def test_a_delta_from_another_process_brings_them_along() -> None:
    registry, gateway = MetricRegistry(), MetricRegistry()
    recorder = gateway.recorder("shop", "main")
    generated(recorder)
    recorder.broken()
    registry.add_delta("gateway-1", gateway.take_delta(T0))
    totals = registry.totals["shop", "main"]
    assert (totals.tokens_in.total, totals.tokens_out.total, totals.broken) == (5, 11, 1)
    assert totals.first_chunk_us.total == pytest.approx(500_000)


def test_what_engines_hold_is_shown_for_their_instance() -> None:
    store = MetricStore()
    registry = MetricRegistry(store)
    sample = InstanceSample(
        endpoint="shop", variant="main", instance_id="i-1",
        sequences_running=5, sequences_waiting=2, cache_percent=40.0,
    )  # fmt: skip
    registry.add_instance_sample(sample, T0)
    body = PrometheusPage(registry).render()[0].decode()
    labels = 'endpoint="shop",instance="i-1"'
    assert f'penstock_sequences{{{labels},state="running",variant="main"}} 5.0' in body
    assert f'penstock_sequences{{{labels},state="waiting",variant="main"}} 2.0' in body
    assert f'penstock_kv_cache_ratio{{{labels},variant="main"}} 0.4' in body
    names = {metric.name for metric in store.metrics()}
    assert names == {"SequencesRunning", "SequencesWaiting", "KVCacheUtilization"}
