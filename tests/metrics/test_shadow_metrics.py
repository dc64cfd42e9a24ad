"""What the page of metrics says of a shadow variant: how many requests were copied to it, and why
others were not."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage

T0 = 1_700_000_000


def samples(registry: MetricRegistry) -> dict[tuple[str, str, str], float]:
    """(name, variant, reason) -> value, of the page."""
    body, _ = PrometheusPage(registry).render()
    return {
        (sample.name, sample.labels["variant"], sample.labels.get("reason", "")): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name.startswith("penstock_shadow_")
    }


def counted() -> MetricRegistry:
    registry = MetricRegistry()
    recorder = registry.recorder("shop", "dark")
    for outcome in ("mirrored", "mirrored", "all-copies-full", "in-session", "mirrored"):
        recorder.mirrored(outcome)
    registry.recorder("shop", "main").started()
    return registry


SHOWN = {
    ("penstock_shadow_mirrored_total", "dark", ""): 3.0,
    ("penstock_shadow_dropped_total", "dark", "all-copies-full"): 1.0,
    ("penstock_shadow_dropped_total", "dark", "in-session"): 1.0,
}


def test_only_a_shadow_variant_has_rows() -> None:
    registry = counted()
    registry.collect(T0)
    assert samples(registry) == SHOWN


def test_those_of_another_gateway_are_added() -> None:
    registry = MetricRegistry()
    registry.add_delta("gateway-2", counted().take_delta(T0))
    registry.collect(T0)
    assert samples(registry) == SHOWN
