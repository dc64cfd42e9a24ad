"""Metrics that models' code makes: over several processes, and as families of the page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from penstock.metrics.page.code_families import code_families
from penstock.metrics.utilization.instances import InstanceSample
from penstock.runtimes.python.code_metrics import CodeMetrics


def told(value: float, kind: str = "counter", **more: Any) -> bytes:
    series = {"name": f"own_{kind}", "kind": kind, "help": "words", "labels": [["a", "b"]]}
    return json.dumps([{**series, "value": value, **more}]).encode()


def test_a_counter_adds_up_over_processes_and_goes_on_after_one_ends() -> None:
    metrics = CodeMetrics()
    metrics.hear(0, told(3))
    metrics.hear(1, told(10))
    metrics.hear(0, told(5))
    metrics.ended(0)
    metrics.hear(0, told(1))
    (series,) = metrics.to_list()
    assert series["value"] == 16.0


def test_a_gauge_is_what_was_told_last_and_a_histogram_adds_up() -> None:
    metrics = CodeMetrics()
    metrics.hear(0, told(3, "gauge"))
    metrics.hear(1, told(2, "gauge"))
    metrics.hear(0, told(1.5, "histogram", buckets=[1], counts=[1, 0]))
    metrics.hear(1, told(4.0, "histogram", buckets=[1], counts=[0, 2]))
    gauge, histogram = metrics.to_list()
    assert gauge["value"] == 2.0
    assert (histogram["value"], histogram["counts"]) == (5.5, [1, 2])


@pytest.mark.parametrize("payload", [b"", b"7", b"[{}]", told(1, "riddle")])
def test_bytes_that_are_no_series_are_an_error(payload: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        CodeMetrics().hear(0, payload)


def test_the_page_has_them_under_their_own_names() -> None:
    """A label of ours that the code has, too, is moved aside."""
    metrics = CodeMetrics()
    labels = [["endpoint", "mine"]]
    metrics.hear(0, told(3, name="hits", labels=labels))
    metrics.hear(0, told(4, name="hits_total"))
    metrics.hear(0, told(2.5, "histogram", name="sizes", buckets=[1], counts=[1, 1]))
    sample = InstanceSample(
        endpoint="e", variant="v", instance_id="i", code_metrics=tuple(metrics.to_list())
    )

    class OfCode(Collector):
        def collect(self) -> Any:
            return code_families([sample])

    registry = CollectorRegistry()
    registry.register(OfCode())
    page = generate_latest(registry).decode()
    ours = 'endpoint="e",instance="i",variant="v"'
    assert 'hits{endpoint="e",exported_endpoint="mine",instance="i",variant="v"} 3.0' in page
    assert f'hits_total{{a="b",{ours}}} 4.0' in page
    assert 'sizes_bucket{a="b",endpoint="e",instance="i",le="+Inf",variant="v"} 2.0' in page
    assert f'sizes_sum{{a="b",{ours}}} 2.5' in page
