"""Multi-model endpoints of a real server: models that differ by one number, and real ones."""

from __future__ import annotations

import io
import shutil
import tarfile
import textwrap
from pathlib import Path
from typing import Any

from tests.kit import model_files
from tests.kit.servers import Server

CODE = """
import os

def model_fn(model_dir):
    return {number}

def predict_fn(data, model):
    return {{"sum": data["x"] + model, "pid": os.getpid()}}
"""


def put(prefix: Path, name: str, number: int) -> None:
    """A target model that adds `number`, copied there as a whole."""
    code = textwrap.dedent(CODE).format(number=number).encode()
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(code)
        tar.addfile(member, io.BytesIO(code))
    archive = prefix / name
    archive.parent.mkdir(parents=True, exist_ok=True)
    made = archive.with_name(f".{archive.name}.part")
    made.write_bytes(held.getvalue())
    made.replace(archive)


def create_multi_model(
    server: Server,
    name: str,
    prefix: Path | str,
    *,
    count: int = 1,
    instance_type: str = "ml.local.small",
    environment: dict[str, str] | None = None,
    cache: str = "Enabled",
    image: str = "",
) -> None:
    """In service."""
    server.model(
        name, prefix, Mode="MultiModel", MultiModelConfig={"ModelCacheSetting": cache},
        Environment=environment or {}, **({"Image": image} if image else {}),
    )  # fmt: skip
    server.endpoint(name, InstanceType=instance_type, InitialInstanceCount=count)


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
        url = f"{self.models.as_uri()}/"
        self.server.model(self.name, url, Mode="MultiModel", **container)
        self.server.endpoint(self.name, InitialInstanceCount=count)

    def invoke(self, model: str, body: bytes = b"[[1, 0, 0, 2]]", **more: Any) -> bytes:
        answer = self.runtime.invoke_endpoint(
            EndpointName=self.name, TargetModel=model, ContentType=JSON, Body=body, **more
        )
        return bytes(answer["Body"].read())

    def listed(self) -> dict[str, dict[str, Any]]:
        """The rows of the admin API by model."""
        rows = self.server.get(f"/admin/endpoints/{self.name}/models")["models"]
        return {row["model"]: row for row in rows}
