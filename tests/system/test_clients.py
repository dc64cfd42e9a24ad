"""Unmodified clients, each in an environment of its own, against a live server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kit.environments import python_of
from tests.kit.servers import EXAMPLES, Server

pytestmark = [pytest.mark.system, pytest.mark.integration]

SCRIPTS = Path(__file__).parent / "scripts"
ARTIFACT = EXAMPLES / "query_intent" / "artifact"


def client_python(name: str) -> str:
    """The interpreter of a client's environment; `make test` makes it."""
    return str(python_of(f"client-{name}"))


def run(argv: list[str], *, seconds: float = 110, **env: str) -> str:
    result = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, **env},
        timeout=seconds,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def tour(python: str, script: str, *arguments: str, seconds: float = 110) -> dict[str, Any]:
    """What a script prints; `seconds` is the time it has."""
    return dict(json.loads(run([python, str(SCRIPTS / script), *arguments], seconds=seconds)))


@pytest.mark.parametrize("version", ["boto3-oldest", "boto3-newest"])
def test_boto3_creates_calls_measures_and_deletes_an_endpoint(server: Server, version: str) -> None:
    name = f"tour-{version}"
    seen = tour(client_python(version), "boto3_tour.py", server.url, ARTIFACT.as_uri(), name)
    seen.pop("botocore")
    account = "123456789012"
    assert seen == {
        "model_arn": f"arn:aws:sagemaker:us-east-1:{account}:model/{name}",
        "endpoint_arn": f"arn:aws:sagemaker:us-east-1:{account}:endpoint/{name}",
        "status": "InService",
        "created_is_recent": True,
        "listed": [name],
        "answer": [{"label": "order-status", "score": pytest.approx(1.0, abs=0.3)}],
        "variant": "all",
        "missing": f"Endpoint missing-endpoint of account {account} not found.",
        "model_error_status": 400,
        "duplicate": (
            "Cannot create already existing model"
            f' "arn:aws:sagemaker:us-east-1:{account}:model/{name}".'
        ),
        "clicks": [3.0],
        # The refused body counts too: it was an invocation, with a model error.
        "invocations": 2.0,
        "metric_error": "InvalidParameterValue",
        "deleted": True,
    }


def test_awscli_drives_control_plane_runtime_and_metrics(server: Server, tmp_path: Path) -> None:
    python = client_python("awscli")
    env = {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_PAGER": "",
    }

    def aws(*words: str) -> Any:
        printed = run([python, str(Path(python).with_name("aws")), *words], **env)
        return json.loads(printed) if printed.strip() else None

    container = json.dumps({"ModelDataUrl": ARTIFACT.as_uri()})
    arn = aws("sagemaker", "create-model", "--model-name", "cli", "--primary-container", container)
    assert arn == {"ModelArn": "arn:aws:sagemaker:eu-west-1:123456789012:model/cli"}
    variants = "VariantName=all,ModelName=cli,InstanceType=ml.m5.large,InitialInstanceCount=1"
    aws(
        *("sagemaker", "create-endpoint-config", "--endpoint-config-name", "cli"),
        *("--production-variants", variants),
    )
    aws(
        *("sagemaker", "create-endpoint", "--endpoint-name", "cli"),
        *("--endpoint-config-name", "cli"),
    )
    server.wait_in_service("cli")
    out = tmp_path / "answer"
    answered = aws(
        *("sagemaker-runtime", "invoke-endpoint", "--endpoint-name", "cli"),
        *("--content-type", "application/json"),
        *("--body", '{"inputs": "where is my order"}', str(out)),
    )
    assert answered["InvokedProductionVariant"] == "all"
    assert json.loads(out.read_text())[0]["label"] == "order-status"
    aws(
        *("cloudwatch", "put-metric-data", "--namespace", "Cli", "--metric-name", "Clicks"),
        *("--value", "1"),
    )
    listed = aws("cloudwatch", "list-metrics", "--namespace", "Cli")
    assert [metric["MetricName"] for metric in listed["Metrics"]] == ["Clicks"]
    aws("sagemaker", "delete-endpoint", "--endpoint-name", "cli")
    aws("sagemaker", "delete-endpoint-config", "--endpoint-config-name", "cli")
    aws("sagemaker", "delete-model", "--model-name", "cli")


def test_tritonclient_over_http_and_grpc(server: Server, query_intent: str) -> None:
    seen = tour(
        client_python("tritonclient"),
        "triton_tour.py",
        f"127.0.0.1:{server.port}",
        f"127.0.0.1:{server.grpc_port}",
        query_intent,
    )
    for door in ("http", "grpc"):
        errors = seen[door].pop("errors")
        assert set(errors) == {"unknown model", "wrong input"}
        assert "missing-model" in errors["unknown model"][1]
        assert "no-such-input" in errors["wrong input"][1]
        assert seen[door] == {
            "live": True,
            "ready": True,
            "model_ready": True,
            "missing_ready": False,
            "server": "penstock",
            "inputs": ["text"],
            "labels": ["order-status", "product-search"],
        }


def test_the_command_line_deploys_calls_explains_and_deletes(server: Server) -> None:
    def penstock(*words: str) -> str:
        return run([sys.executable, "-m", "penstock", *words], PENSTOCK_URL=server.url)

    deployed = json.loads(penstock("deploy", "by-hand", str(ARTIFACT), "--json"))
    assert deployed["EndpointStatus"] == "InService"
    again = json.loads(penstock("deploy", "by-hand", str(ARTIFACT), "--json"))
    assert again["LastModifiedTime"] == deployed["LastModifiedTime"]
    called = json.loads(penstock("invoke", "by-hand", '{"inputs": "where is my order"}', "--json"))
    assert called["body"][0]["label"] == "order-status"
    story = json.loads(penstock("explain", called["request_id"], "--json"))
    assert (story["endpoint"], story["route"]["variant"]) == ("by-hand", "AllTraffic")
    assert story["route"]["reason"] == "only-copy"
    assert story["batch"]["rows"] == 1
    status = json.loads(penstock("status", "by-hand", "--json"))
    assert [copy["state"] for copy in status["copies"]] == ["ready"]
    assert json.loads(penstock("logs", "by-hand", "--json"))["logs"]
    assert json.loads(penstock("delete", "by-hand", "--json"))["Deleted"][0] == "by-hand"
