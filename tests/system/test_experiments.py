"""Inference experiments as unmodified boto3 asks for them: the shadow gets its share, and the
endpoint has afterwards what was asked for, whatever happened meanwhile."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.polling import wait_until
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

ROLE = "arn:aws:iam::123456789012:role/any"
DARK = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return '"dark"', content_type
"""
SHARE = 40


def variant(name: str, model: str, count: int = 1) -> dict[str, Any]:
    return {
        "VariantName": name,
        "ModelName": model,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": {"InstanceType": "ml.local.small", "InstanceCount": count},
        },
    }


def mode(percent: int = SHARE) -> dict[str, Any]:
    sampled = {"ShadowModelVariantName": "dark", "SamplingPercentage": percent}
    return {"SourceModelVariantName": "all", "ShadowModelVariants": [sampled]}


def begin(server: Server, folder: Path, name: str, **members: Any) -> None:
    """Endpoint and experiment have this name; `all` says back what it is sent."""
    server.model(f"{name}-dark", python_model(folder / "dark", DARK))
    server.deploy(name, python_model(folder / name, ECHO))
    server.client("sagemaker").create_inference_experiment(
        **{
            "Name": name, "Type": "ShadowMode", "RoleArn": ROLE, "EndpointName": name,
            "ModelVariants": [variant("all", name), variant("dark", f"{name}-dark")],
            "ShadowModeConfig": mode(),
        } | members
    )  # fmt: skip


def experiment(server: Server, name: str) -> dict[str, Any]:
    return dict(server.client("sagemaker").describe_inference_experiment(Name=name))


def becomes(server: Server, name: str, status: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        seen = experiment(server, name)
        return seen if seen["Status"] == status else None

    return dict(wait_until(there, f"{name} {status}", 90))


def shadow_serves(server: Server, name: str) -> None:
    def there() -> bool:
        seen = {
            one["VariantName"]: one["Status"] for one in experiment(server, name)["ModelVariants"]
        }
        return seen == {"all": "InService", "dark": "InService"}

    wait_until(there, "the shadow's copy", 90)


def stop(server: Server, name: str, **members: Any) -> None:
    server.client("sagemaker").stop_inference_experiment(Name=name, **members)


def hosted(server: Server, name: str) -> tuple[str, list[str], list[str]]:
    """The endpoint's configuration, production variants and shadow variants."""
    seen = server.client("sagemaker").describe_endpoint(EndpointName=name)
    return (
        seen["EndpointConfigName"],
        [one["VariantName"] for one in seen["ProductionVariants"]],
        [one["VariantName"] for one in seen.get("ShadowProductionVariants", [])],
    )


def counted(server: Server, metric: str, name: str) -> float:
    rows = [
        line
        for line in server.page().splitlines()
        if line.startswith(f"penstock_{metric}_total{{") and f'endpoint="{name}"' in line
    ]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


def test_the_shadow_gets_its_share_until_it_is_promoted(
    empty_server: Server, tmp_path: Path
) -> None:
    client = empty_server.client("sagemaker")
    begin(empty_server, tmp_path, "promoted")
    seen = becomes(empty_server, "promoted", "Running")
    week = datetime.timedelta(days=7)
    assert seen["Schedule"]["EndTime"] - seen["Schedule"]["StartTime"] == week
    shadow_serves(empty_server, "promoted")
    count = 300
    assert {empty_server.invoke("promoted", "who") for _ in range(count)} == {"who"}
    copies = lambda: counted(empty_server, "shadow_mirrored", "promoted")  # noqa: E731
    spread = 4 * math.sqrt(count * SHARE * (100 - SHARE)) / 100
    wait_until(lambda: abs(copies() - count * SHARE / 100) < spread, "its share", 30)
    with pytest.raises(ClientError, match="is Running; this call needs") as refused:
        client.delete_inference_experiment(Name="promoted")
    assert refused.value.response["Error"]["Code"] == "ConflictException"
    stop(
        empty_server, "promoted", Reason="it is better",
        ModelVariantActions={"all": "Remove", "dark": "Promote"},
    )  # fmt: skip
    seen = becomes(empty_server, "promoted", "Completed")
    assert seen["StatusReason"] == "it is better"
    assert seen["CompletionTime"] >= seen["CreationTime"]
    assert {one["VariantName"]: one["Status"] for one in seen["ModelVariants"]} == {
        "all": "Deleted", "dark": "InService",
    }  # fmt: skip
    assert hosted(empty_server, "promoted")[1:] == (["dark"], [])
    assert empty_server.invoke("promoted", "who") == "dark"
    client.delete_inference_experiment(Name="promoted")
    with pytest.raises(ClientError) as gone:
        experiment(empty_server, "promoted")
    assert gone.value.response["Error"]["Code"] == "ResourceNotFound"


def test_one_with_a_schedule_starts_and_ends_by_itself(
    empty_server: Server, tmp_path: Path
) -> None:
    """The endpoint goes back to what it had, though its configuration is gone."""
    client, now = empty_server.client("sagemaker"), datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    begin(
        empty_server,
        tmp_path,
        "planned",
        Schedule={"StartTime": now + day, "EndTime": now + 2 * day},
    )
    becomes(empty_server, "planned", "Created")
    assert hosted(empty_server, "planned") == ("planned", ["all"], [])
    (row,) = client.list_inference_experiments(NameContains="planned")["InferenceExperiments"]
    assert row["Status"] == "Created"
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    client.update_inference_experiment(Name="planned", Schedule={"StartTime": soon})
    becomes(empty_server, "planned", "Running")
    client.delete_endpoint_config(EndpointConfigName="planned")
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    client.update_inference_experiment(Name="planned", Schedule={"EndTime": end})
    becomes(empty_server, "planned", "Completed")
    assert hosted(empty_server, "planned") == ("planned", ["all"], [])
    assert empty_server.invoke("planned", "who") == "who"


def test_one_that_runs_is_changed_and_removed(empty_server: Server, tmp_path: Path) -> None:
    client = empty_server.client("sagemaker")
    day = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    begin(empty_server, tmp_path, "changed", Schedule={"StartTime": day})
    client.start_inference_experiment(Name="changed")
    becomes(empty_server, "changed", "Running")
    first = hosted(empty_server, "changed")[0]
    client.update_inference_experiment(Name="changed", ShadowModeConfig=mode(90))
    becomes(empty_server, "changed", "Running")
    shown = client.describe_endpoint(EndpointName="changed")
    assert shown["ShadowProductionVariants"][0]["DesiredWeight"] == 0.9
    assert shown["EndpointConfigName"] != first
    stop(
        empty_server, "changed", DesiredState="Cancelled",
        ModelVariantActions={"all": "Retain", "dark": "Remove"},
    )  # fmt: skip
    becomes(empty_server, "changed", "Cancelled")
    assert hosted(empty_server, "changed") == ("changed", ["all"], [])


def test_a_server_that_is_killed_goes_on_where_the_record_says(
    fresh_server: Server, tmp_path: Path
) -> None:
    """Twice: on the way to the shadow, and on the way back."""
    begin(fresh_server, tmp_path, "killed")
    fresh_server.kill()
    fresh_server.start()
    becomes(fresh_server, "killed", "Running")
    assert hosted(fresh_server, "killed")[1:] == (["all"], ["dark"])
    stop(fresh_server, "killed", ModelVariantActions={"dark": "Promote"})
    fresh_server.kill()
    fresh_server.start()
    becomes(fresh_server, "killed", "Completed")
    assert hosted(fresh_server, "killed")[1:] == (["dark"], [])
    assert fresh_server.invoke("killed", "who") == "dark"


def test_an_endpoint_that_is_deleted_or_updated_ends_it(
    empty_server: Server, tmp_path: Path
) -> None:
    client = empty_server.client("sagemaker")
    begin(empty_server, tmp_path, "theirs")
    becomes(empty_server, "theirs", "Running")
    client.update_endpoint(EndpointName="theirs", EndpointConfigName="theirs")
    seen = becomes(empty_server, "theirs", "Cancelled")
    assert seen["StatusReason"] == "The endpoint was updated to 'theirs'."
    client.create_inference_experiment(
        Name="deleted", Type="ShadowMode", RoleArn=ROLE, EndpointName="theirs",
        ModelVariants=[variant("all", "theirs"), variant("dark", "theirs-dark")],
        ShadowModeConfig=mode(),
    )  # fmt: skip
    client.delete_endpoint(EndpointName="theirs")
    assert becomes(empty_server, "deleted", "Cancelled")["StatusReason"] == (
        "The endpoint was deleted."
    )
