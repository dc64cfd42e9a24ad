"""Resource ids, predefined metrics, and the alarms that a target-tracking policy makes."""

from __future__ import annotations

import pytest

from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.core.scaling.metrics import PREDEFINED, query_of, tracking_alarms
from penstock.core.scaling.spec import (
    COMPONENT,
    VARIANT,
    AlarmPeriods,
    ComponentId,
    VariantId,
    parse,
    words_of,
)

ALL = VariantId("chat", "all")


@pytest.mark.parametrize(
    ("resource_id", "dimension", "found"),
    [
        ("endpoint/chat/variant/all", VARIANT, ALL),
        ("inference-component/talk", COMPONENT, ComponentId("talk")),
        ("inference-component/talk", VARIANT, None),
        ("endpoint/chat/variant/all", COMPONENT, None),
        ("endpoint/chat/variant/all", "sagemaker:variant:DesiredProvisionedConcurrency", None),
        ("endpoint/chat", VARIANT, None),
        ("endpoint/chat/variant/", VARIANT, None),
        ("endpoint/a b/variant/all", VARIANT, None),
        ("endpoint/chat/variant/all/more", VARIANT, None),
        ("inference-component/" + "a" * 64, COMPONENT, None),
    ],
)
def test_a_resource_id_has_the_form_of_its_dimension(
    resource_id: str, dimension: str, found: object
) -> None:
    assert parse(resource_id, dimension) == found


def test_the_words_of_a_count() -> None:
    assert words_of(VARIANT) == "desired instance count"
    assert words_of(COMPONENT) == "desired copy count"


@pytest.mark.parametrize(
    ("kind", "metric", "stat", "period_s"),
    [
        ("SageMakerVariantInvocationsPerInstance", "InvocationsPerInstance", "Sum", 60),
        (
            "SageMakerVariantConcurrentRequestsPerModelHighResolution",
            "ConcurrentRequestsPerModel",
            "Average",
            10,
        ),
        ("SageMakerInferenceComponentInvocationsPerCopy", "InvocationsPerCopy", "Sum", 60),
        (
            "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
            "ConcurrentRequestsPerCopy",
            "Average",
            10,
        ),
    ],
)
def test_a_predefined_type_is_a_metric_of_its_resource(
    kind: str, metric: str, stat: str, period_s: int
) -> None:
    predefined = PREDEFINED[kind]
    resource = ComponentId("talk") if predefined.of_component else ALL
    dimensions = (("EndpointName", "chat"), ("VariantName", "all"))
    assert query_of(predefined, resource, AlarmPeriods()) == MetricQuery(
        id="",
        stat=MetricStat(
            namespace="AWS/SageMaker",
            name=metric,
            dimensions=(("InferenceComponentName", "talk"),)
            if predefined.of_component
            else dimensions,
            period_s=period_s,
            stat=stat,
        ),
    )
    assert predefined.high_resolution == predefined.of_concurrency == (period_s == 10)


@pytest.mark.parametrize(
    ("high_resolution", "period_s", "high", "low"), [(True, 10, 3, 90), (False, 60, 3, 15)]
)
def test_a_policys_alarms(high_resolution: bool, period_s: int, high: int, low: int) -> None:
    queries = (query_of(next(iter(PREDEFINED.values())), ALL, AlarmPeriods()),)
    alarms = tracking_alarms(
        resource_id="endpoint/chat/variant/all",
        policy_arn="arn:p",
        target_value=5.0,
        queries=queries,
        high_resolution=high_resolution,
        counts=False,
        periods=AlarmPeriods(),
        ids=("1", "2"),
    )
    assert [one.name for one in alarms] == [
        "TargetTracking-endpoint/chat/variant/all-AlarmHigh-1",
        "TargetTracking-endpoint/chat/variant/all-AlarmLow-2",
    ]
    words = "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy arn:p:createdBy/"
    assert [one.description for one in alarms] == [f"{words}1.", f"{words}2."]
    assert [one.comparison for one in alarms] == ["GreaterThanThreshold", "LessThanThreshold"]
    assert [one.threshold for one in alarms] == [5.0, 4.5]
    assert [one.evaluation_periods for one in alarms] == [high, low]
    assert [one.datapoints_to_alarm for one in alarms] == [high, low]
    assert {one.period_s for one in alarms} == {period_s}
    assert {one.treat_missing_data for one in alarms} == {"missing"}
    assert {one.queries for one in alarms} == {queries}


def test_the_low_alarm_of_a_count_takes_no_datapoint_for_a_low_one() -> None:
    _, low = tracking_alarms(
        resource_id="r", policy_arn="arn:p", target_value=5.0, queries=(), high_resolution=False,
        counts=True, periods=AlarmPeriods(standard_s=30, standard_low=2, low_share=0.5),
        ids=("1", "2"),
    )  # fmt: skip
    assert (low.treat_missing_data, low.period_s, low.evaluation_periods) == ("breaching", 30, 2)
    assert low.threshold == 2.5
