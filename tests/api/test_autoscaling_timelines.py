"""From requests to counts: metrics, alarms, policies and activities together, second by second."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.scaling import T0, VARIANT, ScalingSite

from penstock.control.scaling import calls
from penstock.control.store.store import Store
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet

CONCURRENCY = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
INVOCATIONS = "SageMakerVariantInvocationsPerInstance"
SAGEMAKER = {"ServiceNamespace": "sagemaker"}


@contextmanager
def site(folder: Path, count: int = 1, **settings: Any) -> Iterator[ScalingSite]:
    made = ScalingSite(folder, **settings)
    try:
        made.endpoint(count=count)
        yield made
    finally:
        made.close()


def tracked(
    made: ScalingSite, kind: str, value: float, *, high: int = 10, low: int = 1, **more: Any
) -> None:
    client = made.client()
    tags = more.pop("Tags", {})
    client.register_scalable_target(**VARIANT, MinCapacity=low, MaxCapacity=high, Tags=tags)
    client.put_scaling_policy(
        **VARIANT,
        PolicyName="track",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": value,
            "PredefinedMetricSpecification": {"PredefinedMetricType": kind},
        }
        | more,
    )


def start(made: ScalingSite, requests: int) -> None:
    for _ in range(requests):
        made.recorder.started()


def end(made: ScalingSite, requests: int, status: int = 200) -> None:
    for _ in range(requests):
        made.recorder.finished(status, 0.1, 0.0, 0.1)


def counted_at(made: ScalingSite, seconds: int) -> dict[int, int]:
    """Second -> the count from then on, for each that it took within so many seconds."""
    first = int(made.clock.wall()) - T0
    found = {first: made.count()}
    for second in range(first + 1, first + seconds + 1):
        made.until(second)
        count = made.count()
        if count != list(found.values())[-1]:
            found[second] = count
    return found


def changes(made: ScalingSite) -> list[tuple[str, str]]:
    """(description, our reason) of each activity that scaled, oldest first."""
    found = made.client().describe_scaling_activities(**SAGEMAKER)["ScalingActivities"]
    return [(one["Description"], one["Details"]) for one in reversed(found)]


def test_concurrency_is_detected_within_35_seconds_and_answered_at_once(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0)
        made.until(60)
        start(made, 12)
        found = counted_at(made, 60)
        assert list(found.values()) == [1, 3]
        assert 80 <= list(found)[1] <= 95  # two whole periods, and their way
        assert changes(made) == [("Setting desired instance count to 3.", "target-tracking")]


def test_with_the_fast_path_within_five_seconds(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0, Tags={"penstock:fast-scaling": "true"})
        made.until(10)
        start(made, 12)
        found = counted_at(made, 30)
        assert list(found.values()) == [1, 3]
        assert list(found)[1] <= 15
        assert changes(made) == [("Setting desired instance count to 3.", "load-above-target")]


def test_the_fast_path_can_be_everybodys(tmp_path: Path) -> None:
    with site(tmp_path, fast=True) as made:
        tracked(made, CONCURRENCY, 5.0)
        start(made, 12)
        made.until(5)
        assert made.count() == 3


def test_it_comes_in_when_the_load_was_low_long_enough(tmp_path: Path) -> None:
    settings = {"high_resolution_low_periods": 3, "cooldown_s_max": 10.0}
    with site(tmp_path, **settings) as made:
        tracked(made, CONCURRENCY, 5.0)
        start(made, 12)
        made.until(60)
        assert made.count() == 3
        end(made, 12)
        found = counted_at(made, 120)
        assert list(found.values()) == [3, 1]


def test_invocations_come_in_when_nobody_calls_any_more(tmp_path: Path) -> None:
    """No call is no datapoint, which is no load for who watched all the time."""
    settings = {"standard_period_s": 10, "standard_low_periods": 3}
    with site(tmp_path, count=4, **settings) as made:
        tracked(made, INVOCATIONS, 225.0)
        for second in range(1, 60):
            start(made, 85)
            end(made, 85)
            made.until(second)
        found = counted_at(made, 120)
        assert list(found.values()) == [4, 1]


def test_a_crash_does_not_scale_in_and_its_end_does(tmp_path: Path) -> None:
    """Half of the instances are down: what is in flight falls, and the count stays."""
    settings = {"high_resolution_low_periods": 2, "cooldown_s_max": 1.0}
    with site(tmp_path, count=4, **settings) as made:
        tracked(made, CONCURRENCY, 5.0)
        start(made, 20)
        made.until(60)
        end(made, 16)
        made.ready["chat"] = {"all": 2}
        made.until(180)
        assert made.count() == 4
        told = made.client().describe_scaling_activities(
            **SAGEMAKER, IncludeNotScaledActivities=True
        )["ScalingActivities"]
        assert {one["Details"] for one in told} == {"copies-not-ready"}
        made.ready["chat"] = {"all": 4}
        assert list(counted_at(made, 120).values()) == [4, 1]


def test_memory_above_80_percent_scales_out(tmp_path: Path) -> None:
    """The policy of the customer-support example."""
    with site(tmp_path, count=2, standard_period_s=10) as made:
        client = made.client()
        client.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=8)
        dimensions = {"EndpointName": "chat", "VariantName": "all"}
        client.put_scaling_policy(
            **VARIANT,
            PolicyName="memory",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 80.0,
                "CustomizedMetricSpecification": {
                    "MetricName": "MemoryUtilization",
                    "Namespace": "/aws/sagemaker/Endpoints",
                    "Dimensions": [
                        {"Name": name, "Value": value} for name, value in dimensions.items()
                    ],
                    "Statistic": "Average",
                },
            },
        )
        key = metric_key("/aws/sagemaker/Endpoints", "MemoryUtilization", dimensions, "Percent")
        for second in range(1, 60):
            made.until(second)
            now = made.clock.wall()
            made.metrics.put(key, now, StatisticSet.of(95.0), now=now, high_resolution=True)
        assert made.count() == 3  # 2 * 95 / 80


def test_what_has_no_room_fails_and_is_told(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        made.ready_max = 2
        tracked(made, CONCURRENCY, 5.0)
        start(made, 40)
        made.until(60)
        assert made.count() == 1
        (activity, *_) = made.client().describe_scaling_activities(**SAGEMAKER)["ScalingActivities"]
        assert activity["StatusCode"] == "Failed"
        assert activity["StatusMessage"] == (
            "Failed to set desired instance count to 8. Reason: CapacityError: the machine is full"
        )


def test_a_rollout_is_left_alone(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0)
        before = made.call(Store.describe_endpoint, "chat").active
        made.call(Store.begin_update, "chat", before, now=5.0)
        start(made, 40)
        made.until(60)
        assert made.count() == 1
        told = made.client().describe_scaling_activities(
            **SAGEMAKER, IncludeNotScaledActivities=True
        )["ScalingActivities"]
        (reason,) = told[0]["NotScaledReasons"]
        assert reason["Code"] == "TargetServicePutResourceAsUnscalable"


def test_an_alarm_on_a_metric_that_never_arrives_changes_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0)
        made.client().put_scaling_policy(
            **VARIANT,
            PolicyName="nothing",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 1.0,
                "CustomizedMetricSpecification": {
                    "MetricName": "Never", "Namespace": "Shop", "Statistic": "Average",
                },
            },
        )  # fmt: skip
        made.until(120)
        assert made.count() == 1
        assert changes(made) == []


def test_an_endpoint_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0)
        made.call(Store.begin_delete, "chat", now=3.0)
        made.call(Store.finish_delete, "chat")
        made.ready.clear()
        made.until(60)
        assert changes(made) == []
        assert made.client().describe_scalable_targets(**SAGEMAKER)["ScalableTargets"]


def test_activities_are_kept_six_weeks(tmp_path: Path) -> None:
    with site(tmp_path) as made:
        client = made.client()
        client.register_scalable_target(**VARIANT, MinCapacity=2, MaxCapacity=4)
        made.until(3)
        assert len(changes(made)) == 1
        made.clock.advance(42 * 86_400.0 - 10)
        made.run(made.driver.tick())
        assert len(changes(made)) == 1
        made.clock.advance(3_600.0)
        made.run(made.driver.tick())
        assert changes(made) == []


def test_the_story_of_an_endpoint(tmp_path: Path) -> None:
    """Observation, wishes, decision and reason; up to a time; and after a restart, too."""
    with site(tmp_path) as made:
        tracked(made, CONCURRENCY, 5.0)
        start(made, 12)
        made.until(60)
        (told,) = made.run(made.scaling.explain("chat", None))
        assert (told["capacity"], told["capacity_min"], told["capacity_max"]) == (3, 1, 10)
        assert [one["name"] for one in told["policies"]] == ["track"]
        first = next(one for one in told["timeline"] if one["to"] == 3)
        assert first["reason"] == "target-tracking"
        assert (first["observed"]["in_flight"], first["observed"]["ready"]) == (12, 1)
        (wish,) = first["wishes"]
        assert (wish["policy"], wish["capacity"], wish["state"]) == ("track", 3, "ALARM")
        assert first["activity"]["status"] == "Successful"
        (before,) = made.run(made.scaling.explain("CHAT", first["at"] - 1.0))
        assert all(one["at"] < first["at"] for one in before["timeline"])
        assert made.run(made.scaling.explain("chat", 0.0))[0]["timeline"] == []
        as_json = json.loads(json.dumps(first))
    back = ScalingSite(tmp_path)
    try:
        (again,) = back.run(back.scaling.explain("chat", None))
        assert [one for one in again["timeline"] if one["to"] == 3] == [as_json]
    finally:
        back.close()


@pytest.mark.parametrize("call", [calls.targets, calls.policies, calls.schedules])
def test_a_database_of_before_there_was_scaling_gets_its_tables(tmp_path: Path, call: Any) -> None:
    old = Path(__file__).parents[1] / "control" / "schema_1.sql"
    with sqlite3.connect(tmp_path / "penstock.db") as database:
        database.executescript(old.read_text())
    database.close()
    store = Store(tmp_path)
    assert call(store) == []
    assert calls.activities(store, limit=10) == []
    store.close()
