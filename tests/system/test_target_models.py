"""Target models of a multi-model endpoint, reached by every door of a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.environments import printed_by
from tests.kit.multi_model import ANSWER, Shop
from tests.kit.polling import wait_until
from tests.kit.servers import Server
from typer.testing import CliRunner

from penstock.cli.main import app

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Shop]:
    models = tmp_path_factory.mktemp("prefix") / "models"
    made = Shop(server, models)
    made.create()
    yield made
    server.client("sagemaker").delete_endpoint(EndpointName=made.name)


def unloaded(shop: Shop, *models: str) -> None:
    for model in models:
        status, body = shop.server.post(f"/v2/repository/models/{shop.name}:{model}/unload", b"")
        assert status == 200, body


def penstock(shop: Shop, *words: str) -> Any:
    """What the command prints; here and not in a process of its own, which takes a second each."""
    done = CliRunner().invoke(app, [*words, "--url", shop.server.url, "--json"])
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout)


TRITON = """
import sys
import numpy as np
import tritonclient.{kind} as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient("127.0.0.1:" + sys.argv[1])
NAME = "shop:team/b"

def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return str(error)
    raise SystemExit("not refused")

def index():
    rows = client.get_model_repository_index({as_json_only})
    rows = rows if isinstance(rows, list) else rows["models"]
    return {{row["name"]: row for row in rows}}

client.unload_model(NAME)
assert not client.is_model_ready(NAME)
assert index()[NAME]["state"] == "UNAVAILABLE", index()
client.load_model(NAME)
assert client.is_model_ready(NAME)
assert index()[NAME]["state"] == "READY", index()
assert "shop" in index()
metadata = client.get_model_metadata(NAME{as_json})
assert metadata["name"] == NAME and metadata["inputs"][0]["name"] == "x", metadata
config = client.get_model_config(NAME{as_json})
assert config.get("config", config)["name"] == NAME, config
tensor = triton.InferInput("x", (1, 4), "FP32")
tensor.set_data_from_numpy(np.array([[1, 0, 0, 2]], np.float32))
answer = client.infer(NAME, [tensor])
assert answer.as_numpy("y").tolist() == [{answer}], answer.as_numpy("y")
response = answer.get_response({as_json_only})
assert (response.get("model_name") or response.get("modelName")) == NAME, response
assert client.infer(NAME, [tensor], model_version="1").as_numpy("y") is not None
assert "has no version 7" in refused(lambda: client.infer(NAME, [tensor], model_version="7"))
stats = client.get_inference_statistics(NAME{as_json})["model_stats"][0]
assert int(stats["inference_count"]) >= 2, stats
client.unload_model(NAME)
assert not client.is_model_ready(NAME)
assert client.get_model_metadata(NAME{as_json})["inputs"]  # as it was when it was loaded
assert client.infer("shop:a", [tensor]).as_numpy("y").tolist() == [{answer}]  # loads it
assert "TargetModel" in refused(lambda: client.infer("shop", [tensor]))
assert "no target model" in refused(lambda: client.load_model("shop:nobody"))
assert "refused" in refused(lambda: client.load_model("shop:../a"))
assert "no target model" in refused(lambda: client.infer("shop:nobody", [tensor]))
assert "unknown model" in refused(lambda: client.get_model_metadata("shop:nobody"))
assert "through endpoints" in refused(lambda: client.load_model("shop"))
assert "unknown" in refused(lambda: client.load_model("nobody:a"))
assert "configuration" in refused(lambda: client.load_model(NAME, config="{{}}"))
print("served")
"""


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient_loads_asks_and_unloads_target_models(shop: Shop, kind: str) -> None:
    http = kind == "http"
    program = TRITON.format(
        kind=kind,
        answer=ANSWER,
        as_json="" if http else ", as_json=True",
        as_json_only="" if http else "as_json=True",
    )
    port = shop.server.port if http else shop.server.grpc_port
    printed = printed_by("client-tritonclient", "-c", program, str(port))
    assert printed.splitlines()[-1:] == ["served"], printed


def error_of(shop: Shop, model: str | None, endpoint: str = "shop") -> tuple[str, int, str]:
    """(code, status, message) as boto3 raises it."""
    named = {} if model is None else {"TargetModel": model}
    with pytest.raises(ClientError) as raised:
        shop.runtime.invoke_endpoint(
            EndpointName=endpoint, ContentType="application/json", Body=b"[[1, 0, 0, 2]]", **named
        )
    answer = raised.value.response
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    return answer["Error"]["Code"], status, answer["Error"]["Message"]


def test_boto3_is_told_what_is_wrong_with_a_target_model(shop: Shop) -> None:
    code, status, message = error_of(shop, None)
    assert (code, status) == ("ValidationError", 400)
    assert "needs a TargetModel" in message
    code, status, message = error_of(shop, "nobody.tar.gz")
    assert (code, status) == ("ValidationError", 404)
    assert "nobody.tar.gz" in message
    for escape in ("../a", "/etc/passwd", "team/../../a", "team//b", "%2e%2e/a"):
        code, status, message = error_of(shop, escape)
        assert (code, status) == ("ValidationError", 400), escape
        assert "is refused" in message


def test_a_single_model_endpoint_takes_no_target_model(shop: Shop, echo: str) -> None:
    code, status, message = error_of(shop, "a", endpoint=echo)
    assert (code, status) == ("ValidationError", 400)
    assert "takes no TargetModel" in message
    body = json.dumps({"inputs": []}).encode()
    status, answer = shop.server.post(f"/v2/models/{echo}:a/infer", body)
    assert (status, b"takes no TargetModel" in answer) == (400, True)
    status, answer = shop.server.post(f"/v2/repository/models/{echo}:a/load", b"")
    assert (status, b"takes no TargetModel" in answer) == (400, True)


def test_a_model_that_cannot_be_ready_in_time_is_a_typed_429(
    server: Server, tmp_path: Path
) -> None:
    """ModelNotReadyException is what AWS's own clients try again; here they are told not to."""
    shop = Shop(server, tmp_path / "models", "slow-shop")
    code = shop.models / "slow" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(
        "import time\ndef model_fn(d):\n    time.sleep(600)\n"
        "def predict_fn(data, model):\n    return data\n"
    )
    shop.create()
    headers = {"x-penstock-deadline-ms": "1500"}

    def hurry(request: Any, **_more: Any) -> None:
        for name, value in headers.items():
            request.headers[name] = value

    shop.runtime.meta.events.register("before-sign.sagemaker-runtime.InvokeEndpoint", hurry)
    with pytest.raises(shop.runtime.exceptions.ModelNotReadyException) as raised:
        shop.invoke("slow")
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    server.client("sagemaker").delete_endpoint(EndpointName="slow-shop")


DIES = "import os\ndef model_fn(d):\n    pass\ndef predict_fn(data, model):\n    os._exit(3)\n"
NO_LOAD = (
    "def model_fn(d):\n    raise ValueError('no weights!')\ndef predict_fn(d, m):\n    return d\n"
)


@pytest.mark.timeout(300)  # a dozen workers start, die, and start again
def test_a_model_that_fails_fails_alone_and_boto3_is_told_how(
    server: Server, tmp_path: Path
) -> None:
    shop = Shop(server, tmp_path / "models", "ill-shop")
    for name, code in (("dies", DIES), ("never", NO_LOAD)):
        (shop.models / name / "code").mkdir(parents=True)
        (shop.models / name / "code" / "inference.py").write_text(code)
    shop.create()
    code, status, message = error_of(shop, "never", shop.name)
    assert (code, status, "no weights!" in message) == ("ModelError", 424, True)

    told: list[str] = []

    def is_quarantined() -> bool:
        code, status, message = error_of(shop, "dies", shop.name)
        told.append(f"{code} {status} {message}")
        return "is not loaded for now" in message

    wait_until(is_quarantined, "the model that dies is left alone", 240)
    assert all(one.startswith("ModelError 424") for one in told), told
    assert json.loads(shop.invoke("a")) == {"predictions": [ANSWER]}
    rows = shop.listed()
    assert {name: rows[name]["state"] for name in ("a", "never")} == {
        "a": "loaded", "never": "failed",
    }  # fmt: skip
    server.client("sagemaker").delete_endpoint(EndpointName=shop.name)


def test_a_model_that_is_larger_than_its_budget_evicts_nobody(
    server: Server, tmp_path: Path
) -> None:
    shop = Shop(server, tmp_path / "models", "tight-shop")
    shop.create(Environment={"PENSTOCK_MODEL_CACHE_SHARE": "0.05"})
    code, status, message = error_of(shop, "a", shop.name)
    assert (code, status, "does not fit" in message) == ("ValidationError", 400, True)
    status, body = server.post(f"/v2/repository/models/{shop.name}:a/load", b"")
    assert (status, b"does not fit" in body) == (400, True)
    server.client("sagemaker").delete_endpoint(EndpointName=shop.name)


def test_admin_lists_changes_and_explains_models_page_by_page(shop: Shop) -> None:
    unloaded(shop, "a", "team/b")
    get, post = shop.server.get, shop.server.post
    path = "/admin/endpoints/shop/models"
    first = get(f"{path}?limit=1")
    assert ([row["model"] for row in first["models"]], first["next_after"]) == (["a"], "a")
    rest = get(f"{path}?limit=1&after=a")
    assert ([row["model"] for row in rest["models"]], rest["next_after"]) == (["team/b"], None)
    assert shop.listed()["team/b"]["state"] == "unloaded"

    status, body = post(f"{path}/team%2Fb/load", b"")
    assert (status, [host["state"] for host in json.loads(body)["hosts"]]) == (200, ["loaded"])
    assert json.loads(shop.invoke("team/b")) == {"predictions": [ANSWER]}
    row = shop.listed()["team/b"]
    assert (row["state"], len(row["instances"]), row["calls"] >= 1) == ("loaded", 1, True)
    assert row["memory_bytes"] >= 0
    story = get(f"{path}/team/b")
    assert (story["model"], [one["state"] for one in story["artifacts"]]) == ("team/b", ["there"])
    assert [host["copy"] > 0 for host in story["hosts"]] == [True]
    for action in ("pin", "unpin", "unload"):
        assert post(f"{path}/team/b/{action}", b"")[0] == 200
    assert shop.listed()["team/b"]["state"] == "unloaded"

    assert post(f"{path}/nobody/load", b"")[0] == 404
    assert post(f"{path}/..%2Fa/load", b"")[0] == 400
    assert post("/admin/endpoints/nobody/models/a/load", b"")[0] == 404


def test_the_command_line_shows_warms_and_explains(shop: Shop) -> None:
    unloaded(shop, "a", "team/b")
    assert penstock(shop, "warm", "shop", "team/b")["loaded"] == ["team/b"]
    states = {one["model"]: one["state"] for one in penstock(shop, "models", "shop")["models"]}
    assert states == {"a": "unloaded", "team/b": "loaded"}
    assert set(penstock(shop, "warm", "shop")["loaded"]) == {"a", "team/b"}
    left = penstock(shop, "models", "shop", "--unload", "a", "--pin", "team/b")["models"]
    assert {one["model"]: one["state"] for one in left} == {"a": "unloaded", "team/b": "loaded"}
    penstock(shop, "models", "shop", "--unpin", "team/b")
    answer = penstock(shop, "invoke", "shop", "[[1, 0, 0, 2]]", "--target-model", "a")
    assert answer["body"] == {"predictions": [ANSWER]}
    assert penstock(shop, "explain", "model", "shop", "a")["hosts"][0]["misses"] >= 1
    request_id = answer["request_id"]
    for words in (("explain", "request", request_id), ("explain", request_id)):
        assert penstock(shop, *words)["request_id"] == request_id


def test_the_command_line_deploys_a_folder_of_models(server: Server, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path / "models", "typed")
    words = ("deploy", "typed", str(shop.models), "--multi-model", "--no-model-cache")
    assert penstock(shop, *words)["EndpointStatus"] == "InService"
    config = server.client("sagemaker").describe_endpoint(EndpointName="typed")
    shop.add("c")
    assert penstock(shop, *words)["EndpointConfigName"] == config["EndpointConfigName"]
    assert json.loads(shop.invoke("c")) == {"predictions": [ANSWER]}
    server.client("sagemaker").delete_endpoint(EndpointName="typed")


def test_openais_clients_name_a_target_model_like_any_other(shop: Shop) -> None:
    """`a` makes no texts: that it says so shows that it was asked."""
    body = json.dumps({"model": "shop:a", "messages": []}).encode()
    status, answer = shop.server.post("/v1/chat/completions", body)
    assert status == 400
    assert b"target" not in answer.lower()
    assert shop.listed()["a"]["state"] == "loaded"
    assert shop.server.get("/v1/models/shop:a")["id"] == "shop:a"
    body = json.dumps({"model": "shop", "messages": []}).encode()
    status, answer = shop.server.post("/v1/chat/completions", body)
    assert (status, b"needs a TargetModel" in answer) == (400, True)
