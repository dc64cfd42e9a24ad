"""One target model of a multi-model endpoint gets another artifact, a part of its requests at a
time, while clients go on naming the model: promoted when answers agree, back when they do not."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.multi_model import ANSWER, ROW, Shop, create_multi_model
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server, up
from typer.testing import CliRunner

from penstock.cli.main import app

pytestmark = pytest.mark.system

MODEL = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    score = json.loads(body) * 0.001 + {off}
    return json.dumps({{"score": score, "by": "{name}"}}), "application/json"
"""
BROKEN = """
def model_fn(model_dir):
    raise ValueError("these weights are torn")

def predict_fn(data, model):
    return data
"""
#: `by` is no part of the answer: `classes` looks at scores alone.
LIKE = "classes slower=0"


def artifact(prefix: Path, name: str, off: float, *, wrong: bool = False) -> None:
    code = MODEL.format(off=off, name=name)
    if wrong:  # another class for every second request
        code = code.replace('"by"', '"label": str(int(score * 1000) % 2), "by"')
    else:
        code = code.replace('"by"', '"label": "0", "by"')
    python_model(prefix / name, code)


class TargetCallers(Repeating):
    """Threads that call `team/b` one request after the other."""

    def __init__(self, server: Server) -> None:
        super().__init__(threads=2)
        self._client = server.client("sagemaker-runtime")
        self.by: Counter[str] = Counter()
        self.failed: list[str] = []

    def step(self) -> None:
        number = sum(self.by.values()) % 100
        try:
            answer = self._client.invoke_endpoint(
                EndpointName="shop", TargetModel="team/b", Body=str(number),
                ContentType="application/json",
            )  # fmt: skip
            by = json.loads(answer["Body"].read())["by"]
        except ClientError as error:
            by = "nobody"
            self.failed.append(str(error))
        with self.lock:
            self.by[by] += 1


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    artifact(models, "team/b", 0.0)
    artifact(models, "team/b-2", 0.0001)
    artifact(models, "team/b-bad", 0.0, wrong=True)
    python_model(models / "team" / "torn", BROKEN)
    return models


@pytest.fixture
def shop(empty_server: Server, prefix: Path) -> Iterator[Server]:
    create_multi_model(empty_server, "shop", prefix)
    yield empty_server
    empty_server.delete("shop")


def penstock(server: Server, *words: str) -> Any:
    done = CliRunner().invoke(app, ["rollout", *words, "--url", server.url])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def begin(server: Server, to: str, **more: Any) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in more.items()]
    penstock(server, "start", "shop", "--model", "team/b", "--to", to, *flags)


def story(server: Server) -> dict[str, Any]:
    return dict(server.get("/admin/endpoints/shop/models/team/b/rollout"))


def over(server: Server) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        told = story(server)
        return None if told["under_way"] else told

    return dict(wait_until(found, "the rollout's end", 90))


def test_answers_that_agree_give_it_all_requests_and_it_keeps_the_name(shop: Server) -> None:
    with TargetCallers(shop) as callers:
        begin(shop, "team/b-2", canary=10, wait=3600, agreement=LIKE)
        told = over(shop)
        assert told["old"] == {"artifact": "team/b-2"}
        before = callers.by["team/b"]
        wait_until(lambda: callers.by["team/b-2"] > 50, "calls of the new one", 30)
    assert told["agreement"]["verdict"] == "as-good", told
    assert [one["reason"] for one in told["timeline"]][-2:] == ["agreed", "terminated"]
    assert callers.failed == []
    assert callers.by["team/b"] <= before + 2, "from its end on the old one gets nothing new"
    assert "team/b-2" in penstock(shop, "show", "shop", "--model", "team/b")


def test_answers_that_disagree_send_it_back_at_once(shop: Server) -> None:
    with TargetCallers(shop) as callers:
        begin(shop, "team/b-bad", canary=10, wait=3600, agreement=LIKE)
        told = over(shop)
        seen = callers.by["team/b-bad"]
        more = callers.by["team/b"] + 50
        wait_until(lambda: callers.by["team/b"] > more, "calls of the old one", 30)
    assert told["old"] == {"artifact": "team/b"}
    assert "answers disagree" in told["failure_reason"]
    assert callers.failed == []
    assert callers.by["team/b-bad"] <= seen + 2
    assert "answers disagree" in penstock(shop, "explain", "shop", "--model", "team/b")


def test_a_new_artifact_that_vanishes_costs_no_call(shop: Server, prefix: Path) -> None:
    with TargetCallers(shop) as callers:
        begin(shop, "team/b-2", canary=50, wait=3600, agreement=f"{LIKE} mirror=0.001")
        wait_until(lambda: callers.by["team/b-2"] > 5, "calls of the new one", 30)
        shutil.rmtree(prefix / "team/b-2")
        shop.post("/admin/endpoints/shop/models/team/b-2/unload", b"")
        told = over(shop)
    assert callers.failed == []
    assert "the new model alone failed" in told["failure_reason"]


def test_what_can_not_be_rolled_out_is_refused_before_anything_changes(shop: Server) -> None:
    path = "/admin/endpoints/shop/models/team/b/rollout"
    refused = {
        b'{"artifact": "team/gone"}': "team/gone",
        b'{"artifact": "team/torn"}': "these weights are torn",
        b'{"artifact": "team/b"}': "answers already",
        b'{"artifact": "../b"}': "..",
        b'{"artifact": "team/b-2", "agreement": "exactly"}': "none of its words",
        b'{"artifact": "team/b-2", "agreement": "scorer=nobody"}': "no endpoint 'nobody'",
        b'{"artifact": "team/b-2", "kind": "ALL_AT_ONCE", "agreement": "exact"}': "while both",
        b'{"artifact": "team/b-2", "alarms": ["gone"]}': "create gone first",
        b'{"artifact": "team/b-2", "percent": 90}': "from 1 to 50",
        b'{"artifact": "team/b-2", "share": 0.5}': "share",
        b"[]": "a JSON object",
    }
    for body, words in refused.items():
        status, answer = shop.post(path, body)
        assert 400 <= status < 500, (body, status)
        assert words in answer.decode(), (body, answer)
    assert story(shop)["under_way"] is False
    status, answer = shop.post(f"{path}/promote", b"")
    assert (status, b"no rollout is under way" in answer) == (409, True)


def test_while_one_is_under_way_the_endpoint_waits_and_orders_are_heard(
    shop: Server, prefix: Path
) -> None:
    begin(shop, "team/b-2", canary=10, wait=3600)
    wait_until(lambda: (story(shop)["progress"] or {}).get("stage") == "baking", "a bake", 30)
    client = shop.client("sagemaker")
    with pytest.raises(ClientError, match="is being rolled out"):
        client.update_endpoint(EndpointName="shop", EndpointConfigName="shop")
    penstock(shop, "abort", "shop", "--model", "team/b")
    assert "an operator ordered it back" in over(shop)["failure_reason"]
    begin(shop, "team/b-2", canary=10, wait=3600)
    wait_until(lambda: (story(shop)["progress"] or {}).get("stage") == "baking", "a bake", 30)
    penstock(shop, "promote", "shop", "--model", "team/b")
    assert over(shop)["old"] == {"artifact": "team/b-2"}
    elsewhere = prefix.parent / "elsewhere"
    artifact(elsewhere, "team/b", 0.0)
    shop.model("elsewhere", elsewhere, Mode="MultiModel")
    shop.config("elsewhere")
    with pytest.raises(ClientError, match="--to team/b --all-at-once"):
        client.update_endpoint(EndpointName="shop", EndpointConfigName="elsewhere")


def test_a_server_that_is_killed_goes_on_where_it_was(tmp_path: Path, prefix: Path) -> None:
    with up(tmp_path) as server:
        create_multi_model(server, "shop", prefix)
        begin(server, "team/b-2", canary=10, wait=3600)
        wait_until(lambda: (story(server)["progress"] or {}).get("stage") == "baking", "a bake", 30)
        share = story(server)["progress"]
        server.kill()
        server.start()
        server.wait_in_service("shop")
        assert story(server)["progress"] == share
        penstock(server, "promote", "shop", "--model", "team/b")
        over(server)
        server.kill()
        server.start()
        server.wait_in_service("shop")
        assert story(server)["old"] == {"artifact": "team/b-2"}
        with TargetCallers(server) as callers:
            wait_until(lambda: callers.by["team/b-2"] > 5, "calls of the new one", 30)
        assert set(callers.by) == {"team/b-2"}


def test_tritons_clients_see_one_name_whichever_artifact_answers(
    empty_server: Server, tmp_path: Path
) -> None:
    made = Shop(empty_server, tmp_path / "models")
    made.add("team/b-2")
    made.create()
    path = "/v2/models/shop:team/b"
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}
    body = json.dumps({"inputs": [tensor]}).encode()

    def asked() -> dict[str, Any]:
        status, answer = empty_server.post(f"{path}/infer", body)
        assert status == 200, answer
        return dict(json.loads(answer))

    before = asked()
    penstock(
        empty_server, "start", "shop", "--model", "team/b", "--to", "team/b-2", "--all-at-once"
    )
    over(empty_server)
    after = asked()
    assert after == before
    assert after["outputs"][0]["data"] == ANSWER
    assert made.listed()["team/b-2"]["calls"] >= 1
    assert made.listed()["team/b"]["answered_by"] == "team/b-2"
    status, _ = empty_server.post("/v2/repository/models/shop:team/b/unload", b"")
    assert status == 200
    wait_until(lambda: made.listed()["team/b-2"]["state"] == "unloaded", "it is unloaded", 30)
    status, _ = empty_server.post("/v2/repository/models/shop:team/b/load", b"")
    assert (status, made.listed()["team/b-2"]["state"]) == (200, "loaded")
    assert empty_server.ask(f"{path}/ready")[0] == 200
    assert empty_server.get(f"{path}")["name"] == "shop:team/b"
    made.server.delete("shop")
