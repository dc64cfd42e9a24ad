"""Inference components through boto3, against a real server: several models on one endpoint."""

from __future__ import annotations

from collections.abc import Callable
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
SMALL = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 0.25}


class Site:
    """A server with an endpoint for components, and models to put on it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.client = server.client("sagemaker")
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
                assert error.response["Error"]["Code"] == "ValidationException"
                assert "Could not find inference component" in str(error)
                return True
            return False

        wait_until(missing, seconds=60, what=f"{name} gone")

    def states(self) -> dict[str, list[str]]:
        """Of the copies, by component; "" for an instance without any."""
        found: dict[str, list[str]] = {}
        for copy in self.server.copies("shop"):
            found.setdefault(copy["component"] or "", []).append(copy["state"])
        return found


@pytest.fixture
def site(fresh_server: Server, tmp_path: Path) -> Site:
    return Site(fresh_server, tmp_path)


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
    site.client.delete_inference_component(InferenceComponentName="red")
    site.gone("red")
    assert site.states() == {"": ["running"]}
