"""A multi-model endpoint as anybody makes it, by boto3, unmodified; what is said of its copy."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import boto3

from bench.machine import foreground
from bench.multi_model_load import Door

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


def multi_model(
    base_url: str,
    name: str,
    prefix: Path,
    *,
    instance_type: str = "ml.local.large",
    cache: bool = True,
    environment: dict[str, str] | None = None,
) -> Door:
    """Creates a multi-model endpoint by boto3 and waits until it is in service; its processes then
    go before other work on the machine."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    client = boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
    setting = "Enabled" if cache else "Disabled"
    client.create_model(
        ModelName=name,
        PrimaryContainer={
            "Mode": "MultiModel",
            "ModelDataUrl": f"{prefix.as_uri()}/",
            "MultiModelConfig": {"ModelCacheSetting": setting},
            "Environment": environment or {},
        },
    )
    variant = {
        "VariantName": "all",
        "ModelName": name,
        "InstanceType": instance_type,
        "InitialInstanceCount": 1,
    }
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    foreground()
    return Door(f"{base_url}/endpoints/{name}/invocations", TARGET_MODEL)


def copy_of(base_url: str, endpoint: str) -> dict[str, Any]:
    """What the admin API says of an endpoint's only copy."""
    with urllib.request.urlopen(f"{base_url}/admin/copies", timeout=30) as answer:
        copies = json.loads(answer.read())["copies"]
    [copy] = [one for one in copies if one["endpoint"] == endpoint]
    return dict(copy)
