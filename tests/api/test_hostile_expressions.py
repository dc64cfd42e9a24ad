"""What strangers write into every door that takes an expression: refused in the service's words, or
taken; never an error of ours, and alarms are looked at as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.hostile_expressions import EXPRESSIONS
from tests.kit.scaling import T0, VARIANT, ScalingSite

Door = Callable[[str], Any]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScalingSite]:
    made = ScalingSite(tmp_path)
    made.endpoint()
    yield made
    made.close()


def metrics_of(expression: str) -> list[dict[str, Any]]:
    metric = {"Metric": {"Namespace": "Shop", "MetricName": "Queue"}, "Period": 10, "Stat": "Sum"}
    return [
        {"Id": "m1", "MetricStat": metric, "ReturnData": False},
        {"Id": "e1", "Expression": expression, "ReturnData": True},
    ]


def get_metric_data(site: ScalingSite) -> Door:
    client = site.client("cloudwatch", checks=False)
    start, end = (datetime.fromtimestamp(T0 + at, UTC) for at in (-3600, 60))
    return lambda expression: client.get_metric_data(
        MetricDataQueries=metrics_of(expression), StartTime=start, EndTime=end
    )


def put_metric_alarm(site: ScalingSite) -> Door:
    client, numbers = site.client("cloudwatch", checks=False), iter(range(1_000))
    return lambda expression: client.put_metric_alarm(
        AlarmName=f"a{next(numbers):03d}",
        Metrics=metrics_of(expression),
        EvaluationPeriods=2,
        Threshold=5.0,
        ComparisonOperator="GreaterThanThreshold",
    )


def put_scaling_policy(site: ScalingSite) -> Door:
    client, numbers = site.client(checks=False), iter(range(1_000))
    client.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)

    def put(expression: str) -> Any:
        metrics = metrics_of(expression)
        del metrics[0]["MetricStat"]["Period"]
        return client.put_scaling_policy(
            **VARIANT,
            PolicyName=f"p{next(numbers) % 40}",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 5.0,
                "CustomizedMetricSpecification": {"Metrics": metrics},
            },
        )

    return put


DOORS = {
    "GetMetricData": (get_metric_data, {"ValidationError", "InvalidParameterValue"}),
    "PutMetricAlarm": (put_metric_alarm, {"ValidationError", "InvalidParameterValue"}),
    "PutScalingPolicy": (put_scaling_policy, {"ValidationException"}),
}


@pytest.mark.parametrize("name", DOORS)
def test_no_door_answers_with_an_error_of_ours(site: ScalingSite, name: str) -> None:
    make, codes = DOORS[name]
    door = make(site)
    witness(site)
    refused = {}
    for expression in EXPRESSIONS:
        try:
            door(expression)
        except ClientError as error:
            answer = error.response
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400, (expression, answer)
            assert answer["Error"]["Code"] in codes, (expression, answer)
            refused[expression] = answer["Error"]["Message"]
    assert 0 < len(refused) < len(EXPRESSIONS)
    if name != "GetMetricData":  # of which SEARCH is a part
        assert [text for text in EXPRESSIONS if "SEARCH(" in text and text not in refused] == []
    assert "refers to itself" in refused["e1+1"]
    site.until(25)
    found = site.client("cloudwatch").describe_alarms(AlarmNames=["witness"])
    (alarm,) = found["MetricAlarms"]
    assert (alarm["StateValue"], alarm["StateUpdatedTimestamp"].timestamp()) == ("ALARM", T0 + 22.0)


def witness(site: ScalingSite) -> None:
    """An alarm whose metric is above its threshold from now on."""
    site.client("cloudwatch").put_metric_alarm(
        AlarmName="witness", Namespace="Shop", MetricName="Queue", Period=10, Statistic="Sum",
        EvaluationPeriods=2, Threshold=5.0, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    for at in (0, 10):
        site.client("cloudwatch").put_metric_data(
            Namespace="Shop",
            MetricData=[
                {
                    "MetricName": "Queue",
                    "Value": 9.0,
                    "Timestamp": datetime.fromtimestamp(T0 + at, UTC),
                    "StorageResolution": 1,
                }
            ],
        )
