"""Multi-model endpoints of a real server, and models that differ by one number."""

from __future__ import annotations

import io
import tarfile
import textwrap
from pathlib import Path
from typing import Any

from tests.system.harness import Server

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
) -> None:
    client = server.client("sagemaker")
    uri = prefix if isinstance(prefix, str) else prefix.as_uri()
    client.create_model(
        ModelName=name,
        PrimaryContainer={
            "Mode": "MultiModel",
            "ModelDataUrl": uri,
            "MultiModelConfig": {"ModelCacheSetting": cache},
            "Environment": environment or {},
        },
    )
    variant: dict[str, Any] = {
        "VariantName": "all",
        "ModelName": name,
        "InstanceType": instance_type,
        "InitialInstanceCount": count,
    }
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    server.wait_in_service(name)
