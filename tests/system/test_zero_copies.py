"""Requests at zero copies, with real processes: held while a copy starts, and then answered."""

from __future__ import annotations

import datetime
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.system.harness import Server, python_model, wait_until

pytestmark = pytest.mark.system

ROLE = "arn:aws:iam::123456789012:role/any"
DOUBLES = """
def model_fn(model_dir): return None
def predict_fn(data, model): return {"doubled": 2 * data["number"]}
"""
SMALL = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 0.25}


class Site:
    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.client = server.client("sagemaker")
        self.runtime = server.client("sagemaker-runtime")
        self._model = python_model(folder / "doubles", DOUBLES)

    def model(self, name: str, **environment: str) -> None:
        self.client.create_model(
            ModelName=name,
            PrimaryContainer={"ModelDataUrl": self._model.as_uri(), "Environment": environment},
        )

    def endpoint(self, name: str, **variant: Any) -> None:
        self.client.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {"VariantName": "all", "InstanceType": "ml.local.medium",
                 "InitialInstanceCount": 1} | variant
            ],
        )  # fmt: skip
        self.client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self.server.wait_in_service(name)

    def component(self, name: str, model: str, copies: int) -> None:
        self.client.create_inference_component(
            InferenceComponentName=name,
            EndpointName="shop",
            VariantName="all",
            Specification={"ModelName": model, "ComputeResourceRequirements": SMALL},
            RuntimeConfig={"CopyCount": copies},
        )
        self.settled(name, copies)

    def settled(self, name: str, copies: int) -> None:
        def there() -> bool:
            seen = self.client.describe_inference_component(InferenceComponentName=name)
            status, current = seen["InferenceComponentStatus"], seen["RuntimeConfig"]
            assert status != "Failed", seen
            return status == "InService" and current["CurrentCopyCount"] == copies

        wait_until(there, seconds=90, what=f"{name} in service with {copies} copies")

    def instances(self, name: str, count: int) -> None:
        """Sets the count of the variant, and returns once it is reached."""
        self.client.update_endpoint_weights_and_capacities(
            EndpointName=name,
            DesiredWeightsAndCapacities=[{"VariantName": "all", "DesiredInstanceCount": count}],
        )

        def reached() -> bool:
            seen = self.client.describe_endpoint(EndpointName=name)
            variant = seen["ProductionVariants"][0]
            done = seen["EndpointStatus"] == "InService"
            return done and variant["CurrentInstanceCount"] == count

        wait_until(reached, seconds=90, what=f"{name} at {count} instances, InService")

    def double(self, number: int, endpoint: str = "shop", **more: Any) -> int:
        answer = self.runtime.invoke_endpoint(
            EndpointName=endpoint,
            ContentType="application/json",
            Body=json.dumps({"number": number}),
            **more,
        )
        return int(json.loads(answer["Body"].read())["doubled"])

    def no_capacity(self, **dimensions: str) -> float:
        now = datetime.datetime.now(datetime.UTC)
        points = self.server.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/SageMaker",
            MetricName="NoCapacityInvocationFailures",
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            StartTime=now - datetime.timedelta(minutes=10),
            EndTime=now + datetime.timedelta(minutes=1),
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
        return float(sum(point["Sum"] for point in points))


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> Site:
    return Site(empty_server, tmp_path)


def ask_all(site: Site, pool: ThreadPoolExecutor, **more: Any) -> list[Future[int]]:
    """Four calls that are held: returns once they are."""
    asked = [pool.submit(site.double, number, **more) for number in range(4)]
    wait_until(lambda: site.server.in_flight() == 4, seconds=30, what="four requests held")
    return asked


def test_a_variant_at_zero_instances_holds_its_requests_until_one_is_there(site: Site) -> None:
    site.model("m")
    site.endpoint("depot", ModelName="m")
    assert site.double(1, "depot") == 2
    site.instances("depot", 0)
    with ThreadPoolExecutor(4) as pool:
        asked = ask_all(site, pool, endpoint="depot")
        site.instances("depot", 1)
        assert [one.result(60) for one in asked] == [0, 2, 4, 6]
    # A gateway of several tells what it counts each second.
    wait_until(lambda: site.server.in_flight() == 0, seconds=30, what="nothing in flight")
    wait_until(
        lambda: site.no_capacity(EndpointName="depot", VariantName="all") == 4,
        seconds=30,
        what="four requests counted as those that found no capacity",
    )


def test_a_component_at_zero_copies_holds_its_requests_until_one_is_there(site: Site) -> None:
    site.endpoint("shop")
    site.model("m")
    site.component("held", "m", 0)
    with ThreadPoolExecutor(4) as pool:
        asked = ask_all(site, pool, InferenceComponentName="held")
        site.client.update_inference_component_runtime_config(
            InferenceComponentName="held", DesiredRuntimeConfig={"CopyCount": 1}
        )
        assert [one.result(60) for one in asked] == [0, 2, 4, 6]
    wait_until(
        lambda: site.no_capacity(InferenceComponentName="held") == 4,
        seconds=30,
        what="four requests counted as those that found no capacity",
    )


def test_a_component_that_says_so_refuses_at_zero_copies_as_aws_does(site: Site) -> None:
    site.endpoint("shop")
    site.model("m", PENSTOCK_ZERO_CAPACITY="refuse")
    site.component("red", "m", 0)
    with pytest.raises(ClientError) as raised:
        site.double(1, InferenceComponentName="red")
    error = raised.value.response["Error"]
    assert error["Code"] == "ValidationError"
    assert error["Message"] == (
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may"
        " be in-progress (if configured) or try to increase the capacity by invoking"
        " UpdateInferenceComponentRuntimeConfig API."
    )


def test_a_component_answers_through_every_door_and_nothing_answers_for_it(site: Site) -> None:
    site.endpoint("shop")
    site.model("m")
    site.component("red", "m", 1)
    assert site.double(4, InferenceComponentName="red") == 8
    stream = site.runtime.invoke_endpoint_with_response_stream(
        EndpointName="shop",
        InferenceComponentName="red",
        ContentType="application/json",
        Body=b'{"number": 5}',
    )["Body"]
    parts = b"".join(event["PayloadPart"]["Bytes"] for event in stream)
    assert json.loads(parts) == {"doubled": 10}
    for more, text in (
        ({}, "Inference Component Name header is required"),
        ({"InferenceComponentName": "blue"}, "Inference component blue of endpoint shop not found"),
    ):
        with pytest.raises(ClientError) as raised:
            site.double(1, **more)
        assert raised.value.response["Error"]["Code"] == "ValidationError"
        assert text in raised.value.response["Error"]["Message"]
    _, index = site.server.post("/v2/repository/index", b"{}")
    assert [one["name"] for one in json.loads(index)] == ["shop", "shop:red"]
    assert site.server.get("/v2/models/shop:red")["name"] == "shop:red"
