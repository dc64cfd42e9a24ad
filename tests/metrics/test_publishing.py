"""MetricsConfig: how often what is published, on literal timelines."""

from __future__ import annotations

import pytest

from penstock.metrics.counts.departures import KEPT_S
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.counts.window_metrics import ALWAYS, Publishing, publishing_of
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import InstanceSample

T0 = 1_700_000_400  #: a multiple of 600
V = {"EndpointName": "shop", "VariantName": "main"}


@pytest.mark.parametrize(
    ("publish_s", "enhanced", "publishing"),
    [
        (0, False, ALWAYS),
        (30, False, Publishing(30, 10, False)),
        (0, True, Publishing(60, 60, True)),
        (30, True, Publishing(30, 30, True)),
        (300, True, Publishing(300, 300, True)),
    ],
)
def test_the_frequency_is_that_of_utilization_and_if_enhanced_of_invocations_too(
    publish_s: int, enhanced: bool, publishing: Publishing
) -> None:
    assert publishing_of(publish_s, enhanced=enhanced) == publishing


class PublishingSite:
    def __init__(self, publish_s: int, *, enhanced: bool) -> None:
        self.store = MetricStore()
        self.registry = MetricRegistry(self.store)
        self.recorder = self.registry.recorder("shop", "main")
        publishing = publishing_of(publish_s, enhanced=enhanced)
        self.registry.set_publishing("shop", "main", publishing)

    def answers_until(self, second: int, since: int = 0) -> None:
        """One each second."""
        for at in range(since, second + 1):
            self.registry.collect(T0 + at)
            self.recorder.started()
            self.recorder.finished(200, 0.01, 0.0, 0.01)

    def points(self, name: str, period_s: int, namespace: str = "AWS/SageMaker") -> dict[int, int]:
        """Second -> samples."""
        metric = metric_key(namespace, name, V).metric
        found = self.store.read_merged(metric, T0, T0 + 600, period_s)
        return {at - T0: int(stats.count) for at, stats in found.items()}


def test_invocations_of_thirty_seconds_are_one_point_that_is_told_when_they_are_over() -> None:
    site = PublishingSite(30, enhanced=True)
    site.answers_until(29)
    assert site.points("Invocations", 1) == {}
    site.answers_until(30, since=30)
    assert site.points("Invocations", 1) == {0: 30}


def test_concurrency_stays_at_ten_seconds() -> None:
    site = PublishingSite(300, enhanced=True)
    site.answers_until(10)
    assert site.points("ConcurrentRequestsPerModel", 10) == {0: 10}
    assert site.points("Invocations", 60) == {}


def test_without_enhanced_metrics_invocations_stay_at_ten_seconds() -> None:
    site = PublishingSite(300, enhanced=False)
    site.answers_until(20)
    assert site.points("Invocations", 1) == {0: 10, 10: 10}


def test_a_minute_and_more_is_no_high_resolution() -> None:
    site = PublishingSite(120, enhanced=True)
    site.answers_until(120)
    assert site.points("Invocations", 1) == {}
    assert site.points("Invocations", 60) == {0: 120}


@pytest.mark.parametrize(
    ("publish_s", "period_s", "points"),
    [(10, 10, {0: 1, 10: 1, 20: 1, 30: 1}), (30, 10, {0: 3, 30: 1}), (60, 10, {}),
     (60, 60, {0: 4}), (0, 60, {0: 4}), (0, 10, {})],
)  # fmt: skip
def test_utilization_is_a_point_for_so_many_seconds(
    publish_s: int, period_s: int, points: dict[int, int]
) -> None:
    site = PublishingSite(publish_s, enhanced=False)
    sample = InstanceSample(endpoint="shop", variant="main", instance_id="i-1", memory_percent=50.0)
    for second in (0, 10, 20, 30):
        site.registry.add_instance_sample(sample, T0 + second)
    found = site.points("MemoryUtilization", period_s, "/aws/sagemaker/Endpoints")
    assert found == points


def test_what_a_deleted_variant_was_told_is_forgotten() -> None:
    site = PublishingSite(300, enhanced=True)
    site.registry.keep((), (), T0 - KEPT_S)
    site.registry.collect(T0)
    site.recorder = site.registry.recorder("shop", "main")
    site.answers_until(20)
    assert site.points("Invocations", 1) == {0: 10, 10: 10}
