"""A multi-model endpoint of real models, for tests of the ways to reach them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.fakes import model_files
from tests.system.harness import Server

#: What `affine` makes of a row: its weights are 0.0, 0.5, ... 5.5, by rows of three.
ROW, ANSWER = [1.0, 0.0, 0.0, 2.0], [9.0, 10.5, 12.0]
JSON = "application/json"


class Shop:
    """The endpoint `name` over the folder `models`, with `a` and `team/b` in it."""

    def __init__(self, server: Server, models: Path, name: str = "shop") -> None:
        self.server = server
        self.models = models
        self.name = name
        self.runtime = server.client("sagemaker-runtime")
        self.add("a")
        self.add("team/b")

    def add(self, model: str) -> None:
        """Complete when it appears: made elsewhere, then moved."""
        made = model_files.affine(self.models.parent / "made" / model)
        place = self.models / model
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, place)

    def create(self, *, count: int = 1, **container: Any) -> None:
        client = self.server.client("sagemaker")
        client.create_model(
            ModelName=self.name,
            PrimaryContainer={"ModelDataUrl": f"{self.models.as_uri()}/", "Mode": "MultiModel"}
            | container,
        )
        variant = {
            "VariantName": "all", "ModelName": self.name, "InstanceType": "ml.local.small",
            "InitialInstanceCount": count,
        }  # fmt: skip
        client.create_endpoint_config(EndpointConfigName=self.name, ProductionVariants=[variant])
        client.create_endpoint(EndpointName=self.name, EndpointConfigName=self.name)
        self.server.wait_in_service(self.name)

    def invoke(self, model: str, body: bytes = b"[[1, 0, 0, 2]]", **more: Any) -> bytes:
        answer = self.runtime.invoke_endpoint(
            EndpointName=self.name, TargetModel=model, ContentType=JSON, Body=body, **more
        )
        return bytes(answer["Body"].read())

    def listed(self) -> dict[str, dict[str, Any]]:
        """The rows of the admin API by model."""
        rows = self.server.get(f"/admin/endpoints/{self.name}/models")["models"]
        return {row["model"]: row for row in rows}
