"""Inference components through boto3, against a real server: several models on one endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.system.harness import Server, python_model, wait_until

pytestmark = pytest.mark.system

ROLE = "arn:aws:iam::123456789012:role/any"
#: Answers with the name that it was given, and its process.
NAMED = """
import os
def model_fn(model_dir): return os.environ["NAME"]
def predict_fn(data, model): return {"name": model, "pid": os.getpid()}
"""
#: One copy after the other.
ROLLING = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
        "WaitIntervalInSeconds": 0,
    }
}
SMALL = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 0.25}


class Site:
    """A server with an endpoint for components, and models to put on it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.client = server.client("sagemaker")
        self.runtime = server.client("sagemaker-runtime")
        self._folder = folder

    def endpoint(self, name: str = "shop", **variant: Any) -> dict[str, Any]:
        self.client.create_endpoint_config(
            EndpointConfigName=name,
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {"VariantName": "all", "InstanceType": "ml.local.medium",
                 "InitialInstanceCount": 1} | variant
            ],
        )  # fmt: skip
        self.client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        return self.server.wait_in_service(name)

    def model(self, name: str) -> None:
        folder = self._folder / name
        if not folder.exists():
            python_model(folder, NAMED)
        self.client.create_model(
            ModelName=name,
            PrimaryContainer={"ModelDataUrl": folder.as_uri(), "Environment": {"NAME": name}},
        )

    def component(self, name: str, model: str, copies: int = 1, **more: Any) -> None:
        self.client.create_inference_component(
            InferenceComponentName=name,
            EndpointName="shop",
            VariantName="all",
            Specification={"ModelName": model, "ComputeResourceRequirements": SMALL} | more,
            RuntimeConfig={"CopyCount": copies},
        )

    def describe(self, name: str) -> dict[str, Any]:
        return dict(self.client.describe_inference_component(InferenceComponentName=name))

    def settled(self, name: str, *, copies: int | None = None) -> dict[str, Any]:
        """Once it is InService or Failed, with that many copies."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.update(self.describe(name))
            current = seen["RuntimeConfig"]["CurrentCopyCount"]
            if copies is not None and current != copies:
                return False
            return seen["InferenceComponentStatus"] in {"InService", "Failed"}

        wait_until(there, seconds=90, what=f"{name} settled with {copies} copies")
        return seen

    def gone(self, name: str) -> None:
        def missing() -> bool:
            try:
                self.describe(name)
            except ClientError as error:
                return "Could not find inference component" in str(error)
            return False

        wait_until(missing, seconds=60, what=f"{name} gone")

    def ask(self, component: str) -> dict[str, Any]:
        """The answer of a component: its name, and the process that it came from."""
        answer = self.runtime.invoke_endpoint(
            EndpointName="shop",
            InferenceComponentName=component,
            ContentType="application/json",
            Body=b"[1]",
        )
        return dict(json.loads(answer["Body"].read()))

    def set_copies(self, component: str, copies: int) -> None:
        self.client.update_inference_component_runtime_config(
            InferenceComponentName=component, DesiredRuntimeConfig={"CopyCount": copies}
        )

    def states(self) -> dict[str, list[str]]:
        """Of the copies, by component; "" for an instance without any."""
        found: dict[str, list[str]] = {}
        for copy in self.server.copies("shop"):
            found.setdefault(copy["component"] or "", []).append(copy["state"])
        return found


@pytest.fixture
def site(empty_server: Server, tmp_path: Path) -> Site:
    return Site(empty_server, tmp_path)


def test_one_component_comes_into_service_on_one_instance_and_goes(site: Site) -> None:
    described = site.endpoint()
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    site.model("red")
    site.component("red", "red")
    assert site.describe("red")["InferenceComponentStatus"] in {"Creating", "InService"}
    seen = site.settled("red")
    assert seen["InferenceComponentStatus"] == "InService", seen
    assert seen["RuntimeConfig"] == {
        "DesiredCopyCount": 1,
        "CurrentCopyCount": 1,
        "PlacementStatus": [{"InstanceType": "ml.local.medium", "CurrentCopyCount": 1}],
    }
    assert site.states() == {"red": ["ready"]}
    assert site.ask("red")["name"] == "red"
    site.client.delete_inference_component(InferenceComponentName="red")
    site.gone("red")
    assert site.states() == {"": ["running"]}


def test_two_components_grow_shrink_go_to_zero_and_leave_in_a_row(site: Site) -> None:
    """Several copies of two models on two instances; what is asked for is what is there."""
    site.endpoint(InitialInstanceCount=2)
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.component("blue", "blue", 1)
    assert site.settled("red", copies=2)["InferenceComponentStatus"] == "InService"
    assert site.settled("blue", copies=1)["InferenceComponentStatus"] == "InService"
    # Spread: one copy of each instance, and the instances have what they have to themselves.
    places = [one["instance"] for one in site.server.copies("shop") if one["component"] == "red"]
    assert len(set(places)) == 2
    for copies in (4, 1, 0, 1):
        site.set_copies("red", copies)
        assert site.describe("red")["RuntimeConfig"]["DesiredCopyCount"] == copies
        seen = site.settled("red", copies=copies)
        assert (seen["InferenceComponentStatus"], seen.get("FailureReason")) == ("InService", None)
        assert site.ask("blue")["name"] == "blue"
        if copies:
            answers = [site.ask("red") for _ in range(20)]
            assert {one["name"] for one in answers} == {"red"}
            assert len({one["pid"] for one in answers}) <= copies
    assert site.settled("blue", copies=1)["InferenceComponentStatus"] == "InService"
    wait_until(
        lambda: site.states() == {"red": ["ready"], "blue": ["ready"]}, seconds=60, what="one each"
    )
    # As notebooks end: component, model, endpoint, without waiting.
    site.client.delete_inference_component(InferenceComponentName="red")
    site.client.delete_model(ModelName="red")
    site.client.delete_endpoint(EndpointName="shop")
    for name in ("red", "blue"):
        site.gone(name)
    assert site.client.list_inference_components()["InferenceComponents"] == []


def test_a_component_that_fits_nowhere_fails_and_says_what_is_short(site: Site) -> None:
    site.endpoint()
    site.model("red")
    huge = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1 << 20}}
    site.component("huge", "red", **huge)
    seen = site.settled("huge")
    assert seen["InferenceComponentStatus"] == "Failed"
    assert seen["FailureReason"].startswith("CapacityError: a copy of huge needs 1024.00 GiB")
    assert (
        "none of the 1 running instances of variant all has so much in all"
        in (seen["FailureReason"])
    )
    # Accelerators that the machine does not have; and a number of copies beyond its cores.
    accelerated = {
        "ComputeResourceRequirements": SMALL | {"NumberOfAcceleratorDevicesRequired": 64}
    }
    site.component("fast", "red", **accelerated)
    assert "64 accelerators" in site.settled("fast")["FailureReason"]
    site.component("red", "red")
    site.settled("red", copies=1)
    site.set_copies("red", 40)
    seen = site.settled("red")
    current = seen["RuntimeConfig"]["CurrentCopyCount"]
    assert (seen["InferenceComponentStatus"], seen["RuntimeConfig"]["DesiredCopyCount"]) == (
        "InService", 40,
    )  # fmt: skip
    assert 1 <= current < 40
    assert seen["FailureReason"].startswith("CapacityError: a copy of red needs 0.12 GiB")


def test_a_model_that_cannot_load_fails_its_component_and_the_others_serve_on(
    site: Site, tmp_path: Path
) -> None:
    site.endpoint()
    site.model("red")
    site.component("red", "red")
    site.settled("red", copies=1)
    broken = python_model(tmp_path / "broken", NAMED.replace('return os.environ["NAME"]', "torn"))
    site.client.create_model(ModelName="broken", PrimaryContainer={"ModelDataUrl": broken.as_uri()})
    site.component("broken", "broken")
    seen = site.settled("broken")
    assert seen["InferenceComponentStatus"] == "Failed"
    assert "torn" in seen["FailureReason"]
    site.client.update_inference_component(
        InferenceComponentName="red",
        Specification={"ModelName": "broken", "ComputeResourceRequirements": SMALL},
    )
    seen = site.settled("red", copies=1)
    assert seen["InferenceComponentStatus"] == "InService"
    assert "the former specification serves on" in seen["FailureReason"]
    assert seen["Specification"]["ModelName"] == "red"
    assert site.states()["red"] == ["ready"]


def test_a_server_killed_in_the_middle_of_an_update_ends_where_it_was_told(site: Site) -> None:
    site.endpoint()
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.settled("red", copies=2)
    site.client.update_inference_component(
        InferenceComponentName="red",
        Specification={"ModelName": "blue", "ComputeResourceRequirements": SMALL},
        RuntimeConfig={"CopyCount": 3},
    )
    site.component("late", "red", 0)
    site.server.kill()
    site.server.start()
    seen = site.settled("red", copies=3)
    assert (seen["InferenceComponentStatus"], seen["Specification"]["ModelName"]) == (
        "InService", "blue",
    )  # fmt: skip
    assert site.settled("late", copies=0)["InferenceComponentStatus"] == "InService"
    assert site.ask("red")["name"] == "blue"
    wait_until(lambda: site.states() == {"red": ["ready"] * 3}, seconds=60, what="three copies")


def test_managed_instances_come_with_the_copies_from_none(site: Site) -> None:
    managed = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
    described = site.endpoint(
        InstanceType="ml.local.small", ManagedInstanceScaling=managed, InitialInstanceCount=1
    )
    assert described["ProductionVariants"][0]["ManagedInstanceScaling"]["MaxInstanceCount"] == 2
    site.model("red")
    half = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 600}}
    site.component("red", "red", 2, **half)
    assert site.settled("red", copies=2)["InferenceComponentStatus"] == "InService"
    variant = site.client.describe_endpoint(EndpointName="shop")["ProductionVariants"][0]
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    assert len({one["instance"] for one in site.server.copies("shop")}) == 2


def test_status_shows_components_and_the_copies_of_each(site: Site) -> None:
    site.endpoint()
    site.model("red")
    site.component("red", "red")
    site.settled("red", copies=1)
    command = [sys.executable, "-m", "penstock", "status", "shop", "--url", site.server.url]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shown = shown.replace("│", " ")
    assert "inference components" in shown
    assert [row.split()[:5] for row in shown.splitlines() if "1/1" in row and "red" in row] == [
        ["red", "shop", "all", "InService", "1/1"]
    ]
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    (component,) = json.loads(told)["components"]
    assert component["InferenceComponentName"] == "red"


def test_an_update_under_load_loses_no_request_and_answers_with_the_one_or_the_other(
    site: Site,
) -> None:
    site.endpoint()
    for name in ("red", "blue"):
        site.model(name)
    site.component("red", "red", 2)
    site.settled("red", copies=2)
    seen: list[str] = []
    failures: list[Exception] = []
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            try:
                seen.append(site.ask("red")["name"])
            except Exception as error:
                failures.append(error)
                return

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for model, policy in (("blue", None), ("red", ROLLING)):
            config = {"DeploymentConfig": policy} if policy else {}
            site.client.update_inference_component(
                InferenceComponentName="red",
                Specification={"ModelName": model, "ComputeResourceRequirements": SMALL},
                **config,
            )
            site.settled("red", copies=2)
            before = len(seen)
            wait_until(lambda low=before: len(seen) > low + 20, seconds=30, what="answers")
            assert set(seen[before + 10 :]) == {model}
    finally:
        done.set()
        for caller in callers:
            caller.join(30)
    assert failures == []
