"""Deploys a model on a running server as anybody would: by boto3, unmodified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3


def client_of(base_url: str, service: str = "sagemaker") -> Any:
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    return boto3.client(service, endpoint_url=base_url, region_name="us-east-1", **keys)


def delete(base_url: str, name: str) -> None:
    """The endpoint; returns when it has ended."""
    client = client_of(base_url)
    client.delete_endpoint(EndpointName=name)
    waiter = client.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def deploy(
    base_url: str,
    name: str,
    folder: Path,
    *,
    copies: int = 1,
    instance_type: str = "ml.local.small",
    routing: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Model, configuration and endpoint of one name; returns when the endpoint is in service."""
    client = client_of(base_url)
    container = {"ModelDataUrl": folder.as_uri(), "Environment": dict(environment or {})}
    client.create_model(ModelName=name, PrimaryContainer=container)
    variant: dict[str, Any] = {
        "VariantName": "all",
        "ModelName": name,
        "InstanceType": instance_type,
        "InitialInstanceCount": copies,
    }
    if routing:
        variant["RoutingConfig"] = dict(routing)
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
