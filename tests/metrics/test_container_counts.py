"""Counts of containers become series with SageMaker's names, window by window."""

from __future__ import annotations

import pytest

from penstock.metrics.counts.container_counts import ContainerRegistry
from penstock.metrics.counts.container_delta import ContainerDelta
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.store import MetricStore

PLACE = {"EndpointName": "e", "VariantName": "v", "ContainerName": "second"}
FIRST_S = 1_000_000


def delta(*answers: tuple[int, float]) -> ContainerDelta:
    made = ContainerDelta()
    for status, latency_s in answers:
        made.count(status, latency_s)
    return made


def told(store: MetricStore, metric: str) -> list[tuple[float, float]]:
    """(samples, sum) of each window."""
    name = metric_key("AWS/SageMaker", metric, PLACE).metric
    found = store.read_merged(name, FIRST_S - 60, FIRST_S + 600, 10)
    return [(stats.count, stats.total) for stats in found.values()]


def test_reports_of_all_instances_are_one_series() -> None:
    store = MetricStore()
    registry = ContainerRegistry(store)
    reports = (delta((200, 0.25), (415, 0.5)), delta((500, 0.25)))
    for at, one in enumerate(reports):
        registry.add("e", "v", {"second": one.to_dict()}, FIRST_S + at)
    registry.collect(FIRST_S + 9.9)
    assert told(store, "Invocations") == []
    registry.collect(FIRST_S + 10.0)
    assert told(store, "Invocations") == [(3, 3)]
    assert told(store, "Invocation4XXErrors") == [(3, 1)]
    assert told(store, "Invocation5XXErrors") == [(3, 1)]
    assert told(store, "ContainerLatency") == [(3, pytest.approx(1e6))]


def test_a_report_that_is_none_adds_nothing() -> None:
    store = MetricStore()
    registry = ContainerRegistry(store)
    good = delta((200, 0.1)).to_dict()
    for bad in ({"invocations": 1}, good | {"latency_us": "?"}, good | {"errors_4xx": "x"}):
        with pytest.raises(Exception):  # noqa: B017, PT011 - the caller sets its reports apart
            registry.add("e", "v", {"first": good, "second": bad}, FIRST_S)
    registry.collect(float("inf"))
    assert list(store.metrics()) == []
