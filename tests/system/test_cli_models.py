"""Models have names that can be found, and an endpoint's name works where a model is wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit.servers import EXAMPLES, Server
from typer.testing import CliRunner, Result

from penstock.cli import main
from penstock.cli.client import Client
from penstock.cli.endpoints import listing
from penstock.errors import CallerError

pytestmark = pytest.mark.system

ECHO = (EXAMPLES / "echo").as_uri()


def run(server: Server, *words: str) -> Result:
    return CliRunner().invoke(main.app, [*words, "--url", server.url])


def model(client: Any, name: str) -> None:
    client.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": ECHO})


def endpoint(client: Any, name: str, *models: str) -> None:
    variants = [
        {
            "VariantName": f"v{at}",
            "ModelName": one,
            "InstanceType": "ml.local.small",
            "InitialInstanceCount": 1,
        }
        for at, one in enumerate(models)
    ]
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants)
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)


@pytest.fixture
def client(empty_server: Server) -> Any:
    made = empty_server.client("sagemaker")
    for name in ("first", "second", "unused"):
        model(made, name)
    endpoint(made, "shop", "first")
    endpoint(made, "both", "first", "second")
    return made


def test_models_list_names_all_and_who_serves_them(empty_server: Server, client: Any) -> None:
    listed = json.loads(run(empty_server, "models", "list", "--json").output)
    assert {one["ModelName"]: sorted(one["Endpoints"]) for one in listed} == {
        "first": ["both", "shop"],
        "second": ["both"],
        "unused": [],
    }
    table = run(empty_server, "models", "list").output
    assert all(word in table for word in ("first", "second", "unused", ECHO))


def test_an_endpoints_name_means_its_model_unless_a_model_is_called_so(
    empty_server: Server, client: Any
) -> None:
    asked = Client(empty_server.url)
    assert listing.named(asked, "unused") == "unused"
    assert listing.named(asked, "shop") == "first"
    with pytest.raises(CallerError, match="serves 2 models: first, second") as several:
        listing.named(asked, "both")
    assert several.value.code == "model-ambiguous"
    with pytest.raises(CallerError, match="no model and no endpoint 'none'") as missing:
        listing.named(asked, "none")
    assert missing.value.code == "model-not-found"
    client.delete_endpoint_config(EndpointConfigName="shop")
    with pytest.raises(CallerError, match="the endpoint of that name names no model"):
        listing.named(asked, "shop")
    model(client, "shop")
    assert listing.named(asked, "shop") == "shop"


def test_a_job_by_an_endpoints_name(empty_server: Server, client: Any, tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text('{"inputs": "one"}\n')
    words = ("transform", "shop", str(data), str(tmp_path / "out"), "--name", "j", "--no-follow")
    done = run(empty_server, *words)
    assert done.exit_code == 0, done.output
    assert client.describe_transform_job(TransformJobName="j")["ModelName"] == "first"
    client.stop_transform_job(TransformJobName="j")
