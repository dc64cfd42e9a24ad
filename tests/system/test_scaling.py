"""Auto scaling live: the seed's calls verbatim, a kill in the middle, zero and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: The seed's cooldowns are of three minutes, its alarms of at least half a minute.
QUICK = {
    "PENSTOCK_SCALING_HIGH_RESOLUTION_HIGH_PERIODS": "1",
    "PENSTOCK_SCALING_HIGH_RESOLUTION_LOW_PERIODS": "1",
    "PENSTOCK_SCALING_COOLDOWN_S_MAX": "1",
}
SLEEPS = """
    import time

    def model_fn(model_dir):
        return None

    def predict_fn(data, model):
        time.sleep(0.5)
        return data
"""


LOADS_SLOWLY = """
    import time

    def model_fn(model_dir):
        time.sleep(1.0)
        return None

    def predict_fn(data, model):
        return data
"""
VARIANT, COMPONENT = "endpoint/chat/variant/all", "inference-component/talk"
NAMED = {"X-Amzn-SageMaker-Inference-Component": "talk"}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


@contextmanager
def settings(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def served(tmp_path: Path, **more: str) -> Iterator[Server]:
    with settings(QUICK | more):
        server = Server(tmp_path / "state").start()
    yield server
    server.stop()


@contextmanager
def load(
    server: Server, endpoint: str, callers: int, headers: dict[str, str] | None = None
) -> Iterator[list[int]]:
    """So many requests at a time, for as long as the block lasts; their statuses."""
    stop = threading.Event()
    statuses: list[int] = []

    def call() -> None:
        while not stop.is_set():
            status, _ = server.post(f"/endpoints/{endpoint}/invocations", b"[1]", headers)
            statuses.append(status)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def variant(server: Server, endpoint: str) -> dict[str, Any]:
    described = server.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    return dict(described["ProductionVariants"][0])


def activities(server: Server, resource_id: str, **more: Any) -> list[dict[str, Any]]:
    client = server.client("application-autoscaling")
    found = client.describe_scaling_activities(
        ServiceNamespace="sagemaker", ResourceId=resource_id, **more
    )
    return list(found["ScalingActivities"])


@dataclass(frozen=True, slots=True)
class Seed:
    """One server with all four code blocks of the seed, and what came of them under load."""

    server: Server
    variant: Future[set[int]]  #: statuses under load, once it is back at one instance
    component: Future[set[int]]


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
    """With only AWS_ENDPOINT_URL set. A variant and a component go out and in at the same time: the
    most of it is periods of alarms."""
    folder = tmp_path_factory.mktemp("seed")
    with served(folder) as server, ThreadPoolExecutor(2) as both:
        model = python_model(folder / "model", SLEEPS)
        server.deploy("chat", model)
        component(server, model)
        with settings({"AWS_ENDPOINT_URL": server.url} | CREDENTIALS):
            seeds_calls("us-east-1", VARIANT, as_min_capacity=1, as_max_capacity=3)
            seeds_calls_for_a_component("us-east-1", COMPONENT, 1, 3)
        yield Seed(
            server,
            both.submit(out_and_in, server, "chat", count_of_variant(server), None),
            both.submit(out_and_in, server, "shop", count_of_component(server), NAMED),
        )


def out_and_in(
    server: Server, endpoint: str, count: Callable[[], int], headers: dict[str, str] | None
) -> set[int]:
    with load(server, endpoint, 12, headers) as statuses:
        wait_until(lambda: count() == 3, seconds=110, what=f"three of {endpoint} under load")
    wait_until(lambda: count() == 1, seconds=110, what=f"one of {endpoint} after it")
    return set(statuses)


def count_of_variant(server: Server) -> Callable[[], int]:
    client = server.client("sagemaker")

    def count() -> int:
        described = client.describe_endpoint(EndpointName="chat")
        return int(described["ProductionVariants"][0]["CurrentInstanceCount"])

    return count


def count_of_component(server: Server) -> Callable[[], int]:
    client = server.client("sagemaker")
    return lambda: copies_seen(client)


@pytest.mark.timeout(400)
def test_the_seeds_calls_scale_a_variant_out_under_load_and_in_after_it(seed: Seed) -> None:
    """The two code blocks for an endpoint as they stand."""
    assert seed.variant.result() == {200}
    done = activities(seed.server, VARIANT)
    told = [(one["Description"], one["Details"]) for one in done]
    assert told[0] == ("Setting desired instance count to 1.", "target-tracking")
    # Perhaps by way of 2: the first period has seconds from before the load.
    assert ("Setting desired instance count to 3.", "target-tracking") in told
    first = done[-1]
    assert first["StatusCode"] in {"Successful", "Overridden"}
    alarms = seed.server.client("cloudwatch").describe_alarms(
        AlarmNamePrefix=f"TargetTracking-{VARIANT}"
    )["MetricAlarms"]
    kinds = [one["AlarmName"].split("-")[2] for one in alarms]
    assert sorted(kinds) == ["AlarmHigh", "AlarmLow"]
    assert first["Cause"] == (
        f"monitor alarm {alarms[0]['AlarmName']} in state ALARM triggered"
        " policy SageMakerEndpointScalingPolicy"
    )


def seeds_calls(region: str, resource_id: str, as_min_capacity: int, as_max_capacity: int) -> None:
    autoscaling_client = boto3.client("application-autoscaling", region_name=region)
    autoscaling_client.register_scalable_target(
        ServiceNamespace="sagemaker",
        ResourceId=resource_id,
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        MinCapacity=as_min_capacity,
        MaxCapacity=as_max_capacity,
    )
    autoscaling_client.put_scaling_policy(
        PolicyName="SageMakerEndpointScalingPolicy",
        ServiceNamespace="sagemaker",
        ResourceId=resource_id,
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
            },
            "ScaleInCooldown": 180,
            "ScaleOutCooldown": 180,
        },
    )


@pytest.mark.timeout(400)
def test_the_seeds_calls_scale_a_component_out_under_load_and_in_after_it(seed: Seed) -> None:
    """The two code blocks for an inference component as they stand."""
    assert seed.component.result() == {200}
    told = [one["Description"] for one in activities(seed.server, COMPONENT)]
    assert told[0] == "Setting desired copy count to 1."
    assert "Setting desired copy count to 3." in told  # perhaps by way of 2


def seeds_calls_for_a_component(
    region: str, resource_id: str, as_min_capacity: int, as_max_capacity: int
) -> None:
    autoscaling_client = boto3.client("application-autoscaling", region_name=region)
    autoscaling_client.register_scalable_target(
        ServiceNamespace="sagemaker",
        ResourceId=resource_id,
        ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
        MinCapacity=as_min_capacity,
        MaxCapacity=as_max_capacity,
    )
    autoscaling_client.put_scaling_policy(
        PolicyName="SageMakerInferenceComponentScalingPolicy",
        ServiceNamespace="sagemaker",
        ResourceId=resource_id,
        ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": (
                    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
                )
            },
            "ScaleInCooldown": 180,
            "ScaleOutCooldown": 180,
        },
    )


def component(server: Server, folder: Path, count: int = 1) -> None:
    """Component `talk` on endpoint `shop`, in service."""
    client = server.client("sagemaker")
    client.create_endpoint_config(
        EndpointConfigName="shop",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/any",
        ProductionVariants=[
            {"VariantName": "all", "InstanceType": "ml.local.medium", "InitialInstanceCount": 1}
        ],
    )
    client.create_endpoint(EndpointName="shop", EndpointConfigName="shop")
    server.wait_in_service("shop")
    client.create_model(ModelName="talk", PrimaryContainer={"ModelDataUrl": folder.as_uri()})
    needs = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 0.25}
    client.create_inference_component(
        InferenceComponentName="talk",
        EndpointName="shop",
        VariantName="all",
        Specification={"ModelName": "talk", "ComputeResourceRequirements": needs},
        RuntimeConfig={"CopyCount": count},
    )
    wait_until(lambda: copies(server) == count, seconds=90, what="the component's copies")


def copies(server: Server) -> int:
    return copies_seen(server.client("sagemaker"))


def copies_seen(client: Any) -> int:
    described = client.describe_inference_component(InferenceComponentName="talk")
    if described["InferenceComponentStatus"] != "InService":
        return -1
    return int(described["RuntimeConfig"]["CurrentCopyCount"])


def test_a_request_at_zero_copies_starts_the_first_one_and_is_answered(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        component(server, python_model(tmp_path / "model", SLEEPS))
        server.client("sagemaker").update_inference_component_runtime_config(
            InferenceComponentName="talk", DesiredRuntimeConfig={"CopyCount": 0}
        )
        wait_until(lambda: copies(server) == 0, seconds=60, what="zero copies")
        server.client("application-autoscaling").register_scalable_target(
            ServiceNamespace="sagemaker",
            ResourceId=COMPONENT,
            ScalableDimension="sagemaker:inference-component:DesiredCopyCount",
            MinCapacity=0,
            MaxCapacity=2,
        )
        assert server.post("/endpoints/shop/invocations", b"[7]", NAMED) == (200, b"[7]")
        (activity,) = activities(server, COMPONENT)
        assert activity["Cause"] == "requests are held while capacity is zero"
        assert activity["Details"] == "requests-held"
        (told,) = server.get("/admin/endpoints/shop/scaling")["targets"]
        assert (told["capacity"], told["timeline"][0]["reason"]) == (1, "requests-held")
        shown = subprocess.run(
            [sys.executable, "-m", "penstock", "scaling", "explain", "shop", "--url", server.url],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "inference-component/talk: 1 (0 to 2)" in shown
        assert "0 -> 1" in shown
        assert "requests-held" in shown


def test_a_kill_in_the_middle_of_a_scaling_activity_changes_nothing_in_the_end(
    tmp_path: Path,
) -> None:
    """The count ends where the last accepted decision put it, and what fires again adds nothing."""
    server = Server(tmp_path / "state").start()
    try:
        server.deploy("slow", python_model(tmp_path / "model", LOADS_SLOWLY))
        named = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": "endpoint/slow/variant/all",
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
        scaling, cloudwatch = server.client("application-autoscaling"), server.client("cloudwatch")
        scaling.register_scalable_target(**named, MinCapacity=1, MaxCapacity=9)
        policy = scaling.put_scaling_policy(
            **named,
            PolicyName="two-more",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
            },
        )
        cloudwatch.put_metric_alarm(
            AlarmName="busy",
            Namespace="Test",
            MetricName="Busy",
            Statistic="Sum",
            Period=10,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
            TreatMissingData="ignore",  # it stays as it is set, and fires every ten seconds
            AlarmActions=[policy["PolicyARN"]],
        )
        cloudwatch.set_alarm_state(AlarmName="busy", StateValue="ALARM", StateReason="a test")
        (under_way,) = activities(server, named["ResourceId"])
        assert under_way["StatusCode"] == "InProgress"
        server.kill()
        server.start()
        wait_until(
            lambda: variant(server, "slow")["CurrentInstanceCount"] == 3,
            seconds=110,
            what="the count that was decided before the kill",
        )
        wait_until(
            lambda: activities(server, named["ResourceId"])[0]["StatusCode"] == "Successful",
            seconds=30,
            what="the end of the activity",
        )
        fired = '"reason": "at-desired-capacity"'
        story = "/admin/endpoints/slow/scaling"
        wait_until(
            lambda: fired in json.dumps(server.get(story)), seconds=40, what="the alarm, again"
        )
        assert variant(server, "slow")["DesiredInstanceCount"] == 3
        (same,) = activities(server, named["ResourceId"])
        assert same["ActivityId"] == under_way["ActivityId"]
    finally:
        server.stop()
