"""Inference components of a real server: an endpoint for them, models, and their copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

#: Says which model it is, and which process; a number comes back doubled.
NAMED = """
import os
def model_fn(model_dir): return os.environ["NAME"]
def predict_fn(data, model):
    doubled = 2 * data["number"] if isinstance(data, dict) else None
    return {"name": model, "pid": os.getpid(), "doubled": doubled}
"""
SMALL = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 0.25}


class ComponentSite:
    """A server with the endpoint `shop` for components, and models to put on it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.client = server.client("sagemaker")
        self.runtime = server.client("sagemaker-runtime")
        self.folder = folder

    def endpoint(self, name: str = "shop", **variant: Any) -> dict[str, Any]:
        kind = {"ModelName": None, "InstanceType": "ml.local.medium"} | variant
        role = {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/any"}
        self.server.endpoint(name, members=role, **kind)
        return self.server.wait_in_service(name)

    def model(self, name: str, **environment: str) -> None:
        folder = self.folder / name
        if not folder.exists():
            python_model(folder, NAMED)
        self.server.model(name, folder, Environment={"NAME": name} | environment)

    def component(self, name: str, model: str, copies: int = 1, **more: Any) -> None:
        """`more`: members of its specification."""
        self.client.create_inference_component(
            InferenceComponentName=name, EndpointName="shop", VariantName="all",
            Specification={"ModelName": model, "ComputeResourceRequirements": SMALL} | more,
            RuntimeConfig={"CopyCount": copies},
        )  # fmt: skip

    def describe(self, name: str) -> dict[str, Any]:
        return dict(self.client.describe_inference_component(InferenceComponentName=name))

    def settled(self, name: str, *, copies: int | None = None) -> dict[str, Any]:
        """Once it is InService or Failed, with that many copies."""
        seen: dict[str, Any] = {}

        def there() -> bool:
            seen.clear()
            seen.update(self.describe(name))
            if copies is not None and seen["RuntimeConfig"]["CurrentCopyCount"] != copies:
                return False
            return seen["InferenceComponentStatus"] in {"InService", "Failed"}

        wait_until(there, f"{name} settled with {copies} copies", 90)
        return seen

    def serves(self, name: str, *, copies: int | None = None) -> dict[str, Any]:
        seen = self.settled(name, copies=copies)
        assert seen["InferenceComponentStatus"] == "InService", seen
        return seen

    def gone(self, name: str) -> None:
        def missing() -> bool:
            try:
                self.describe(name)
            except ClientError as error:
                return "Could not find inference component" in str(error)
            return False

        wait_until(missing, f"{name} gone", 60)

    def delete(self, name: str) -> None:
        self.client.delete_inference_component(InferenceComponentName=name)
        self.gone(name)

    def ask(self, component: str, data: Any = b"[1]") -> dict[str, Any]:
        return dict(self.server.invoke("shop", data, InferenceComponentName=component))

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
