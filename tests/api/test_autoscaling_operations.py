"""Application Auto Scaling's operations, by an unmodified boto3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.scaling import ACCOUNT, T0, VARIANT, ScalingSite

HIGH_RESOLUTION = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
WORDS = (
    "service namespace: sagemaker, resource ID: endpoint/chat/variant/all, scalable dimension:"
    " sagemaker:variant:DesiredInstanceCount"
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScalingSite]:
    made = ScalingSite(tmp_path)
    made.endpoint()
    yield made
    made.close()


def tracking(**members: Any) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "TargetValue": 5.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": HIGH_RESOLUTION},
    }
    known = {name: one for name, one in (configuration | members).items() if one is not None}
    return VARIANT | {
        "PolicyName": "track",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": known,
    }


def stepping(**members: Any) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    known = {name: one for name, one in (configuration | members).items() if one is not None}
    return VARIANT | {
        "PolicyName": "step",
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": known,
    }


def scheduled(**members: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ScheduledActionName": "morning",
        "Schedule": "cron(0 8 * * ? *)",
        "ScalableTargetAction": {"MinCapacity": 3},
    }
    return VARIANT | {name: one for name, one in (made | members).items() if one is not None}


def registered(site: ScalingSite, low: int = 1, high: int = 10, **more: Any) -> Any:
    client = site.client()
    client.register_scalable_target(**VARIANT, MinCapacity=low, MaxCapacity=high, **more)
    return client


def refused(call: Any, **members: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**members)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


# Targets


def test_a_target_is_registered_described_and_updated(site: ScalingSite) -> None:
    client = registered(site, Tags={"team": "search"})
    (first,) = client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    arn = first.pop("ScalableTargetARN")
    assert arn.startswith(
        f"arn:aws:application-autoscaling:eu-central-1:{ACCOUNT}:scalable-target/"
    )
    assert first.pop("CreationTime").timestamp() == T0
    assert first == VARIANT | {
        "MinCapacity": 1,
        "MaxCapacity": 10,
        "RoleARN": (
            f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/sagemaker.application-autoscaling"
            ".amazonaws.com/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
        ),
        "SuspendedState": {
            "DynamicScalingInSuspended": False,
            "DynamicScalingOutSuspended": False,
            "ScheduledScalingSuspended": False,
        },
    }
    assert client.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"team": "search"}
    again = client.register_scalable_target(
        **VARIANT, MaxCapacity=4, SuspendedState={"DynamicScalingInSuspended": True}
    )
    assert again["ScalableTargetARN"] == arn
    (second,) = client.describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=["endpoint/CHAT/variant/all"]
    )["ScalableTargets"]
    assert (second["MinCapacity"], second["MaxCapacity"]) == (1, 4)
    assert second["SuspendedState"]["DynamicScalingInSuspended"] is True


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"MinCapacity": 1}, "Minimum and maximum capacity are required to register a new"),
        ({"MinCapacity": 5, "MaxCapacity": 4}, "Maximum capacity cannot be less than minimum"),
        ({"MinCapacity": -1, "MaxCapacity": 4}, "Minimum capacity must be between 0 and"),
        (
            {"ResourceId": "endpoint/gone/variant/all", "MinCapacity": 1, "MaxCapacity": 2},
            "SageMaker endpoint variant doesn't exist: endpoint/gone/variant/all",
        ),
        (
            {"ResourceId": "endpoint/chat/variant/none", "MinCapacity": 1, "MaxCapacity": 2},
            "SageMaker endpoint variant doesn't exist: endpoint/chat/variant/none",
        ),
        (
            {"ResourceId": "chat", "MinCapacity": 1, "MaxCapacity": 2},
            "Unsupported service namespace, resource type or scalable dimension",
        ),
        (
            {"ScalableDimension": "ecs:service:DesiredCount", "MinCapacity": 1, "MaxCapacity": 2},
            "Unsupported service namespace, resource type or scalable dimension",
        ),
        (
            {"ServiceNamespace": "ecs", "MinCapacity": 1, "MaxCapacity": 2},
            "Unsupported service namespace, resource type or scalable dimension",
        ),
        (
            {"ScalableDimension": "lots", "MinCapacity": 1, "MaxCapacity": 2},
            "Value 'lots' at 'scalableDimension' failed to satisfy constraint: Member must satisfy"
            " enum value set: [",
        ),
    ],
)
def test_what_can_not_be_registered(
    site: ScalingSite, members: dict[str, Any], message: str
) -> None:
    code, text = refused(site.client().register_scalable_target, **(VARIANT | members))
    assert code == "ValidationException"
    assert message in text


def test_bounds_that_are_moved_move_a_count_that_is_out_of_them(site: ScalingSite) -> None:
    client = registered(site, 3, 10)
    assert site.count() == 3
    assert site.notified == ["chat"]
    (activity,) = client.describe_scaling_activities(ServiceNamespace="sagemaker")[
        "ScalingActivities"
    ]
    assert activity["Description"] == "Setting desired instance count to 3."
    assert activity["Cause"] == "minimum capacity was set to 3"
    assert activity["StatusCode"] == "InProgress"
    site.until(3)
    (activity,) = client.describe_scaling_activities(**VARIANT)["ScalingActivities"]
    assert activity["StatusCode"] == "Successful"
    assert activity["StatusMessage"] == (
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker."
    )
    assert activity["EndTime"] > activity["StartTime"]


def test_what_is_not_registered_is_not_found(site: ScalingSite) -> None:
    """Clients catch this code and no other, also for a wrong dimension."""
    client = site.client()
    message = f"No scalable target registered for {WORDS}"
    assert refused(client.deregister_scalable_target, **VARIANT) == (
        "ObjectNotFoundException",
        message,
    )
    assert refused(client.put_scaling_policy, **tracking()) == ("ObjectNotFoundException", message)
    assert refused(client.put_scheduled_action, **scheduled()) == (
        "ObjectNotFoundException",
        message,
    )
    registered(site)
    other = VARIANT | {"ScalableDimension": "sagemaker:variant:DesiredProvisionedConcurrency"}
    with pytest.raises(client.exceptions.ObjectNotFoundException):
        client.deregister_scalable_target(**other)


def test_deregistering_takes_policies_alarms_and_schedules_along(site: ScalingSite) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    client.put_scaling_policy(**tracking())
    client.put_scheduled_action(**scheduled())
    assert len(cloudwatch.describe_alarms()["MetricAlarms"]) == 2
    client.deregister_scalable_target(**VARIANT)
    sagemaker = {"ServiceNamespace": "sagemaker"}
    assert client.describe_scalable_targets(**sagemaker)["ScalableTargets"] == []
    assert client.describe_scaling_policies(**sagemaker)["ScalingPolicies"] == []
    assert client.describe_scheduled_actions(**sagemaker)["ScheduledActions"] == []
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []


# Policies


def test_a_target_tracking_policy_makes_the_two_alarms_that_drive_it(site: ScalingSite) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    made = client.put_scaling_policy(**tracking(ScaleInCooldown=180))
    arn = made["PolicyARN"]
    assert arn.startswith(f"arn:aws:autoscaling:eu-central-1:{ACCOUNT}:scalingPolicy:")
    assert arn.endswith(":resource/sagemaker/endpoint/chat/variant/all:policyName/track")
    (policy,) = client.describe_scaling_policies(**VARIANT)["ScalingPolicies"]
    assert policy["PolicyARN"] == arn
    assert policy["PolicyType"] == "TargetTrackingScaling"
    assert policy["Alarms"] == made["Alarms"]
    assert policy["TargetTrackingScalingPolicyConfiguration"] == {
        "TargetValue": 5.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": HIGH_RESOLUTION},
        "ScaleInCooldown": 180,
    }
    high, low = cloudwatch.describe_alarms()["MetricAlarms"]
    for alarm, kind in ((high, "AlarmHigh"), (low, "AlarmLow")):
        uuid = alarm["AlarmName"].removeprefix(f"TargetTracking-endpoint/chat/variant/all-{kind}-")
        assert len(uuid) == 36
        assert alarm["AlarmDescription"] == (
            f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {arn}:createdBy/{uuid}."
        )
        assert alarm["AlarmActions"] == [arn]
        assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"], alarm["Period"]) == (
            "AWS/SageMaker",
            "ConcurrentRequestsPerModel",
            "Average",
            10,
        )
        assert alarm["Dimensions"] == [
            {"Name": "EndpointName", "Value": "chat"},
            {"Name": "VariantName", "Value": "all"},
        ]
    assert (high["ComparisonOperator"], high["Threshold"], high["EvaluationPeriods"]) == (
        "GreaterThanThreshold",
        5.0,
        2,
    )
    assert (low["ComparisonOperator"], low["Threshold"], low["EvaluationPeriods"]) == (
        "LessThanThreshold",
        4.5,
        90,
    )
    client.delete_scaling_policy(**{**VARIANT, "PolicyName": "track"})
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []


def test_a_metric_of_a_minute_has_alarms_of_three_and_of_fifteen(site: ScalingSite) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    kind = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    client.put_scaling_policy(**tracking(TargetValue=225, PredefinedMetricSpecification=kind))
    high, low = cloudwatch.describe_alarms()["MetricAlarms"]
    for alarm, periods in ((high, 3), (low, 15)):
        assert (alarm["Period"], alarm["EvaluationPeriods"]) == (60, periods)
        assert (alarm["MetricName"], alarm["Statistic"]) == ("InvocationsPerInstance", "Sum")
    assert low["TreatMissingData"] == "breaching"  # nobody calls: there is no datapoint then


def test_a_policy_that_is_put_again_keeps_its_arn_and_replaces_its_alarms(
    site: ScalingSite,
) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    first = client.put_scaling_policy(**tracking())
    second = client.put_scaling_policy(**tracking(TargetValue=7.0))
    assert first["PolicyARN"] == second["PolicyARN"]
    alarms = cloudwatch.describe_alarms()["MetricAlarms"]
    assert {one["AlarmName"] for one in alarms} == {one["AlarmName"] for one in second["Alarms"]}
    assert alarms[0]["Threshold"] == 7.0


def test_a_step_policy_shows_the_alarms_that_trigger_it(site: ScalingSite) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    made = client.put_scaling_policy(**stepping())
    assert made["Alarms"] == []
    cloudwatch.put_metric_alarm(
        AlarmName="mine", Namespace="N", MetricName="M", Statistic="Sum", Period=10, Threshold=1,
        EvaluationPeriods=1, ComparisonOperator="GreaterThanThreshold",
        AlarmActions=[made["PolicyARN"]],
    )  # fmt: skip
    (policy,) = client.describe_scaling_policies(
        ServiceNamespace="sagemaker", PolicyNames=["step"]
    )["ScalingPolicies"]
    assert [one["AlarmName"] for one in policy["Alarms"]] == ["mine"]
    client.delete_scaling_policy(**VARIANT, PolicyName="step")
    assert len(cloudwatch.describe_alarms()["MetricAlarms"]) == 1  # it is the caller's own


def test_the_policies_of_the_customer_support_example(site: ScalingSite) -> None:
    """80 % of memory, and 225 invocations a minute for each instance, as customised metrics."""
    client, cloudwatch = registered(site), site.client("cloudwatch")
    dimensions = [
        {"Name": "EndpointName", "Value": "chat"},
        {"Name": "VariantName", "Value": "all"},
    ]
    for name, value, namespace, metric, statistic in (
        ("memory", 80.0, "/aws/sagemaker/Endpoints", "MemoryUtilization", "Average"),
        ("calls", 225.0, "AWS/SageMaker", "InvocationsPerInstance", "Sum"),
    ):
        policy = tracking(
            TargetValue=value,
            PredefinedMetricSpecification=None,
            CustomizedMetricSpecification={
                "MetricName": metric,
                "Namespace": namespace,
                "Dimensions": dimensions,
                "Statistic": statistic,
            },
        )
        client.put_scaling_policy(**(policy | {"PolicyName": name}))
    alarms = cloudwatch.describe_alarms()["MetricAlarms"]
    assert [(one["MetricName"], one["Threshold"]) for one in alarms if "High" in one["AlarmName"]]
    assert sorted({(one["MetricName"], one["Statistic"], one["Period"]) for one in alarms}) == [
        ("InvocationsPerInstance", "Sum", 60),
        ("MemoryUtilization", "Average", 60),
    ]


def test_metric_math_can_be_tracked(site: ScalingSite) -> None:
    client, cloudwatch = registered(site), site.client("cloudwatch")
    stat = {"Metric": {"Namespace": "Shop", "MetricName": "Waiting"}, "Stat": "Sum"}
    metrics = [
        {"Id": "m1", "MetricStat": stat, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 / 10", "Label": "per ten"},
    ]
    client.put_scaling_policy(
        **tracking(
            PredefinedMetricSpecification=None, CustomizedMetricSpecification={"Metrics": metrics}
        )
    )
    high = cloudwatch.describe_alarms()["MetricAlarms"][0]
    assert [one["Id"] for one in high["Metrics"]] == ["m1", "e1"]
    assert high["Metrics"][0]["MetricStat"]["Period"] == 60


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (tracking(TargetValue=0.0), "TargetValue must be a number above 0"),
        (tracking(PredefinedMetricSpecification=None), "Exactly one of PredefinedMetric"),
        (tracking(ScaleInCooldown=-1), "ScaleInCooldown must be between 0 and"),
        (
            tracking(
                PredefinedMetricSpecification={
                    "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
                }
            ),
            "Predefined metric type SageMakerInferenceComponentInvocationsPerCopy is not supported",
        ),
        (
            tracking(
                PredefinedMetricSpecification={"PredefinedMetricType": "RDSReaderAverageCPU"}
            ),
            "failed to satisfy constraint: Member must satisfy enum value set: [",
        ),
        (
            tracking(
                PredefinedMetricSpecification=None,
                CustomizedMetricSpecification={"MetricName": "M", "Namespace": "N"},
            ),
            "Statistic is required in a customized metric specification",
        ),
        (
            tracking(
                PredefinedMetricSpecification=None,
                CustomizedMetricSpecification={
                    "Metrics": [{"Id": "e1", "Expression": "m1 +"}]
                },
            ),
            "Invalid metrics expression: unexpected 'end' at 4.",
        ),
        (
            tracking() | {"PolicyType": "PredictiveScaling"},
            "Predictive scaling is not supported for the service namespace sagemaker",
        ),
        (
            tracking() | {"PolicyType": "StepScaling"},
            "TargetTrackingScalingPolicyConfiguration can't be specified when policy type is",
        ),
        (
            VARIANT | {"PolicyName": "p", "PolicyType": "StepScaling"},
            "StepScalingPolicyConfiguration is required when policy type is StepScaling",
        ),
        (
            tracking() | {"PolicyType": "Guessing"},
            "Value 'Guessing' at 'policyType' failed to satisfy constraint: Member must satisfy"
            " enum value set: [PredictiveScaling, StepScaling, TargetTrackingScaling]",
        ),
        (stepping(StepAdjustments=[]), "At least one step adjustment is required."),
        (stepping(AdjustmentType=None), "AdjustmentType is required for step scaling policies"),
        (stepping(MinAdjustmentMagnitude=2), "PercentChangeInCapacity only"),
        (
            stepping(
                AdjustmentType="ExactCapacity",
                StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": -1}],
            ),
            "must not be negative for adjustment type ExactCapacity",
        ),
        (
            stepping(
                StepAdjustments=[
                    {"MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 5,
                     "ScalingAdjustment": 1},
                ]
            ),
            "A positive upper bound needs a step adjustment with a null upper bound.",
        ),
    ],
)  # fmt: skip
def test_a_policy_that_can_not_be_is_refused_and_leaves_nothing(
    site: ScalingSite, policy: dict[str, Any], message: str
) -> None:
    client = registered(site)
    code, text = refused(client.put_scaling_policy, **policy)
    assert code == "ValidationException"
    assert message in text
    assert client.describe_scaling_policies(**VARIANT)["ScalingPolicies"] == []
    assert site.client("cloudwatch").describe_alarms()["MetricAlarms"] == []


def test_deleting_what_is_not_there_is_told(site: ScalingSite) -> None:
    client = registered(site)
    assert refused(client.delete_scaling_policy, **VARIANT, PolicyName="none") == (
        "ObjectNotFoundException",
        f"No scaling policy found for {WORDS}, policy name: none",
    )
    assert refused(client.delete_scheduled_action, **VARIANT, ScheduledActionName="none") == (
        "ObjectNotFoundException",
        f"No scheduled action found for {WORDS}, scheduled action name: none",
    )


def test_a_target_has_at_most_fifty_policies(site: ScalingSite) -> None:
    client = registered(site)
    for number in range(50):
        client.put_scaling_policy(**(stepping() | {"PolicyName": f"p{number}"}))
    code, _ = refused(client.put_scaling_policy, **(stepping() | {"PolicyName": "p50"}))
    assert code == "LimitExceededException"
    client.put_scaling_policy(**(stepping() | {"PolicyName": "p49"}))  # one that is there


def test_lists_have_pages(site: ScalingSite) -> None:
    client = registered(site)
    for number in range(5):
        client.put_scaling_policy(**(stepping() | {"PolicyName": f"p{number}"}))
    pages = client.get_paginator("describe_scaling_policies").paginate(
        ServiceNamespace="sagemaker", PaginationConfig={"PageSize": 2}
    )
    names = [[one["PolicyName"] for one in page["ScalingPolicies"]] for page in pages]
    assert names == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    for call in (client.describe_scaling_policies, client.describe_scaling_activities):
        code, _ = refused(call, ServiceNamespace="sagemaker", NextToken="made-up")
        assert code == "InvalidNextTokenException"
        code, _ = refused(call, ServiceNamespace="sagemaker", MaxResults=0)
        assert code == "ValidationException"
    code, text = refused(
        client.describe_scaling_policies,
        ServiceNamespace="sagemaker",
        ScalableDimension=VARIANT["ScalableDimension"],
    )
    assert (code, text) == (
        "ValidationException",
        "A resource ID must be specified with a scalable dimension",
    )


# Scheduled actions


def test_a_scheduled_action_moves_the_bounds_when_it_is_due(site: ScalingSite) -> None:
    """T0 is 22:14:00 UTC; 22:15 in Berlin's winter is 21:15 UTC, so 23:15 there is due."""
    client = registered(site, 1, 2)
    client.put_scheduled_action(
        **scheduled(
            Schedule="cron(15 23 * * ? *)",
            Timezone="Europe/Berlin",
            ScalableTargetAction={"MinCapacity": 3, "MaxCapacity": 6},
        )
    )
    (action,) = client.describe_scheduled_actions(**VARIANT)["ScheduledActions"]
    assert action["Timezone"] == "Europe/Berlin"
    assert action["ScalableTargetAction"] == {"MinCapacity": 3, "MaxCapacity": 6}
    site.until(59)
    assert site.count() == 1
    site.until(63)
    assert site.count() == 3
    (target,) = client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (3, 6)
    scale, bounds = client.describe_scaling_activities(**VARIANT)["ScalingActivities"]
    assert bounds["Description"] == "Setting min capacity to 3 and max capacity to 6"
    assert bounds["Cause"] == "scheduled action name morning was triggered"
    assert bounds["StatusCode"] == "Successful"
    assert scale["Description"] == "Setting desired instance count to 3."
    assert scale["Cause"] == "minimum capacity was set to 3"


def test_an_action_of_one_time_runs_once(site: ScalingSite) -> None:
    client = registered(site, 1, 9)
    client.put_scheduled_action(**scheduled(Schedule="at(2023-11-14T22:14:30)"))
    site.until(40)
    assert site.count() == 3
    client.register_scalable_target(**VARIANT, MinCapacity=1)
    site.until(100)
    activities = client.describe_scaling_activities(**VARIANT)["ScalingActivities"]
    assert len(activities) == 2


def test_what_was_due_while_the_server_was_down_runs_when_it_is_back(
    site: ScalingSite, tmp_path: Path
) -> None:
    client = registered(site, 1, 9)
    client.put_scheduled_action(**scheduled(Schedule="at(2023-11-14T22:15:00)"))
    site.until(10)
    site.close()
    back = ScalingSite(tmp_path)
    try:
        back.ready["chat"] = {"all": 1}
        back.clock.advance(600.0)
        back.until(605)
        assert back.count() == 3
    finally:
        back.close()


def test_a_suspended_schedule_does_not_run(site: ScalingSite) -> None:
    client = registered(site, 1, 9, SuspendedState={"ScheduledScalingSuspended": True})
    client.put_scheduled_action(**scheduled(Schedule="at(2023-11-14T22:14:30)"))
    site.until(40)
    assert site.count() == 1
    assert client.describe_scaling_activities(**VARIANT)["ScalingActivities"] == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"Schedule": "cron(0 0 30 2 ? *)"}, "never fires from now on"),
        ({"Schedule": "at(2001-01-01T00:00:00)"}, "never fires from now on"),
        ({"Schedule": "cron(0 8 * * *)"}, "Invalid schedule expression. Details: a cron"),
        ({"Schedule": "cron(0 20 * * MON-FRI *)"}, "one of day of month and day of week has to"),
        ({"Schedule": "rate(5 fortnights)"}, "Invalid schedule expression. Details: a rate"),
        ({"Timezone": "Mars/Olympus"}, "'Mars/Olympus' is no time zone"),
        ({"Timezone": "../../etc/passwd"}, "is no time zone"),
        ({"Schedule": None}, "A schedule is required"),
        ({"ScalableTargetAction": None}, "A scalable target action is required"),
        ({"ScalableTargetAction": {}}, "needs a minimum or a maximum capacity"),
        ({"ScalableTargetAction": {"MinCapacity": 5, "MaxCapacity": 2}}, "cannot be less than"),
        ({"StartTime": T0 + 600, "EndTime": T0 + 60}, "The end time must be after"),
        ({"EndTime": T0 + 60}, "never fires from now on"),
        ({"ScheduledActionName": "a:b"}, "failed to satisfy constraint"),
    ],
)
def test_what_can_not_be_scheduled(
    site: ScalingSite, members: dict[str, Any], message: str
) -> None:
    client = registered(site)
    code, text = refused(client.put_scheduled_action, **scheduled(**members))
    assert code == "ValidationException"
    assert message in text
    assert client.describe_scheduled_actions(**VARIANT)["ScheduledActions"] == []


def test_a_scheduled_action_that_is_put_again_keeps_what_is_not_named(site: ScalingSite) -> None:
    client = registered(site)
    client.put_scheduled_action(**scheduled())
    client.put_scheduled_action(**VARIANT, ScheduledActionName="morning", Schedule="rate(1 hour)")
    (action,) = client.describe_scheduled_actions(**VARIANT)["ScheduledActions"]
    assert action["Schedule"] == "rate(1 hour)"
    assert action["ScalableTargetAction"] == {"MinCapacity": 3}
    client.delete_scheduled_action(**VARIANT, ScheduledActionName="morning")
    assert client.describe_scheduled_actions(**VARIANT)["ScheduledActions"] == []


# Tags


def test_tags_of_a_target(site: ScalingSite) -> None:
    client = site.client()
    arn = client.register_scalable_target(**VARIANT, MinCapacity=1, MaxCapacity=2)[
        "ScalableTargetARN"
    ]
    client.tag_resource(ResourceARN=arn, Tags={"a": "1", "b": "2"})
    client.untag_resource(ResourceARN=arn, TagKeys=["a"])
    assert client.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"b": "2"}
    other = arn[:-4] + "none"
    with pytest.raises(client.exceptions.ResourceNotFoundException) as missing:
        client.list_tags_for_resource(ResourceARN=other)
    assert missing.value.response["ResourceName"] == other
    with pytest.raises(client.exceptions.TooManyTagsException):
        client.tag_resource(ResourceARN=arn, Tags={f"k{n}": "v" for n in range(51)})
