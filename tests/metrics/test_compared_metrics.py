"""Pairs of answers of a rollout, as they are counted over all processes: with the codes of a
scorer's errors where the rollout is judged, and without them on the page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.rollout.agreement import AgreementCounts
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.page.prometheus import PrometheusPage

T0 = 1_700_000_000
ROLLOUT = 7000


def counted(*outcomes: str) -> MetricRegistry:
    registry = MetricRegistry()
    for outcome in outcomes:
        registry.recorder("shop", "blue").compared(ROLLOUT, outcome)
    return registry


def test_codes_of_a_scorers_errors_come_from_every_process_and_are_no_labels() -> None:
    registry = counted("agree", "scored", "unscored:model-code-failed")
    there = counted("unscored:endpoint-not-found", "unscored:endpoint-not-found", "differ")
    registry.add_delta("gateway-2", there.take_delta(T0))
    registry.collect(T0)
    assert AgreementCounts.of(registry.compared("shop", ROLLOUT)) == AgreementCounts(
        agree=1, differ=1, scored=1, unscored=3, scorer_error="endpoint-not-found"
    )
    body, _ = PrometheusPage(registry).render()
    assert {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == "penstock_rollout_compared_total"
    } == {"agree": 1.0, "differ": 1.0, "scored": 1.0, "unscored": 3.0}
