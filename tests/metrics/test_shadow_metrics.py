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


def mixed() -> MetricRegistry:
    """Of variant `main`: `chat` answered 3 callers and has another; its shadow `next` got 2 copies
    and has one of them."""
    registry = MetricRegistry()
    for name, answered in (("chat", 3), ("next", 1)):
        recorder = registry.recorder("shop", "main", name, "shop-1")
        recorder.apart = name == "next"
        for _ in range(answered):
            recorder.started()
            recorder.finished(200, 0.5, 0.0, 0.1)
        recorder.started()
    return registry


def seen(registry: MetricRegistry) -> dict[str, tuple[int, int]]:
    """Of the variant and of each component: (answered, in flight)."""
    whole = registry.totals["shop", "main"]
    found = {"": (whole, None)} | {
        name: (part, name) for name, part in registry.components["shop", "main"].items()
    }
    return {
        name: (int(totals.total_s.count), registry.in_flight("shop", "main", component))
        for name, (totals, component) in found.items()
    }


APART = {"": (3, 1), "chat": (3, 1), "next": (1, 1)}


def test_a_variant_counts_no_copies_that_its_component_of_that_kind_got() -> None:
    """Else they would look like callers to a policy or an alarm of the variant."""
    registry = mixed()
    registry.collect(T0)
    assert seen(registry) == APART
    (window,) = registry.totals["shop", "main"].windows.values()
    assert (window.invocations, window.concurrency) == (3, {T0: 1})
    of_config = registry._configs["shop", "main"]["shop-1"]
    assert of_config.total_s.count == 3


def test_nor_those_of_another_gateway_and_once_it_answers_callers_all_count() -> None:
    there, registry = mixed(), MetricRegistry()
    registry.add_delta("gateway-2", there.take_delta(T0))
    registry.collect(T0)
    assert seen(registry) == APART
    there.recorder("shop", "main", "next", "shop-1").finished(200, 0.5, 0.0, 0.1)
    registry.add_delta("gateway-2", there.take_delta(T0 + 1))
    registry.collect(T0 + 1)
    assert seen(registry) == {"": (4, 1), "chat": (3, 1), "next": (2, 0)}


def test_what_becomes_a_shadow_with_requests_in_flight_leaves_its_variants() -> None:
    there, registry = mixed(), MetricRegistry()
    there.recorder("shop", "main", "next", "shop-1")
    registry.add_delta("gateway-2", there.take_delta(T0))
    assert registry.in_flight("shop", "main") == 2
    there.recorder("shop", "main", "next", "shop-1").apart = True
    registry.add_delta("gateway-2", there.take_delta(T0 + 1))
    assert registry.in_flight("shop", "main") == 1
    assert registry.in_flight("shop", "main", "next") == 1
