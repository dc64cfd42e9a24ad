"""Updates whose new model is compared with the old one, as unmodified boto3 asks for them: one tag,
and the answers decide."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import pipeline, python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: Scores that differ from model to model by what `score` says, and errors for some requests.
MODEL = """
import json, os

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    number = int(json.loads(body)[1])
    if number % 50 < {fails}:
        raise ValueError("this one fails")
    return json.dumps({{"score": number * 0.001 + {off}}}), "application/json"
"""
NEVER_S = 3600


@contextmanager
def shop(server: Server, folder: Path, **models: tuple[float, int]) -> Iterator[Any]:
    """An endpoint under load that serves the first model, and a configuration for each; yields
    SageMaker's client. Model: what its scores are off by, and how many of 50 requests fail."""
    for name, (off, fails) in models.items():
        code = MODEL.format(off=off, fails=fails)
        python_model(folder / name, code)
        server.prepare(name, folder / name)
    client = server.client("sagemaker")
    first = next(iter(models))
    client.create_endpoint(EndpointName="shop", EndpointConfigName=first)
    server.wait_in_service("shop")
    with Load(server.port, "/endpoints/shop/invocations", workers=2):
        yield client


def update(client: Any, to: str, agreement: str, wait_s: int = NEVER_S) -> None:
    arn = client.describe_endpoint_config(EndpointConfigName=to)["EndpointConfigArn"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "penstock:agreement", "Value": agreement}])
    routing = {
        "Type": "CANARY",
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
        "WaitIntervalInSeconds": wait_s,
    }
    client.update_endpoint(
        EndpointName="shop",
        EndpointConfigName=to,
        DeploymentConfig={
            "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing},
        },
    )


def settled(client: Any) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        described: dict[str, Any] = client.describe_endpoint(EndpointName="shop")
        return described if described["EndpointStatus"] == "InService" else None

    return dict(wait_until(found, "the rollout's end", 90))


def story(server: Server) -> dict[str, Any]:
    return dict(server.get("/admin/endpoints/shop/rollout"))


def test_equal_answers_promote_long_before_the_bake_is_over(
    empty_server: Server, tmp_path: Path
) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 0), new=(0.001, 0)) as client:
        update(client, "new", "scores tolerance=0.01 slower=0")
        assert settled(client)["EndpointConfigName"] == "new"
    told = story(empty_server)
    assert told["agreement"]["verdict"] == "as-good"
    assert told["agreement"]["pairs"]["agree"] > 400
    [promoted] = [
        one
        for one in told["timeline"]
        if one["reason"] == "agreed" and one["what"].startswith("rollout")
    ]
    assert "answers disagree (sure to 99" in promoted["detail"]


def test_answers_that_disagree_send_it_back(empty_server: Server, tmp_path: Path) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 0), new=(0.5, 0)) as client:
        update(client, "new", "scores tolerance=0.01 slower=0")
        described = settled(client)
    assert described["EndpointConfigName"] == "old"
    assert "answers disagree" in described["FailureReason"]
    assert "the update to configuration new failed, old serves on" in described["FailureReason"]


def test_errors_of_the_new_model_alone_send_it_back(empty_server: Server, tmp_path: Path) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 1), new=(0.0, 4)) as client:
        update(client, "new", "exact errors=0.3 slower=0")
        described = settled(client)
    assert described["EndpointConfigName"] == "old"
    assert "the new model alone failed" in described["FailureReason"]
    pairs = story(empty_server)["agreement"]["pairs"]
    assert pairs["new_failed"] > pairs["old_failed"]
    assert pairs["both_failed"] > 0, "what both fail is nobody's fault"


def agreeing(server: Server) -> int:
    agreement = story(server)["agreement"]
    return agreement["pairs"]["agree"] if agreement else 0


def on_record(server: Server) -> int:
    """Pairs that agree, as the database has them."""
    with closing(sqlite3.connect(server.state_dir / "penstock.db")) as database:
        found = database.execute("SELECT counts FROM compared_pairs").fetchall()
    return sum(json.loads(counts).get("agree", 0) for (counts,) in found)


def test_what_was_compared_before_a_kill_counts_after_it(
    empty_server: Server, tmp_path: Path
) -> None:
    """Bounds that take more pairs than a test has, so an operator ends it."""
    with shop(empty_server, tmp_path, old=(0.0, 0), new=(0.001, 0)) as client:
        update(client, "new", "scores disagree=0.0001 errors=0.0001 slower=0 confidence=0.999999")
        wait_until(lambda: on_record(empty_server) > 50, "pairs on record", 60)
    empty_server.kill()
    kept = on_record(empty_server)
    empty_server.start()
    assert agreeing(empty_server) >= kept
    with Load(empty_server.port, "/endpoints/shop/invocations", workers=2):
        wait_until(lambda: agreeing(empty_server) > kept + 50, "more pairs", 60)
    assert order(empty_server, "abort") == 200
    assert settled(client)["EndpointConfigName"] == "old"
    wait_until(lambda: on_record(empty_server) == agreeing(empty_server), "the last save", 30)
    found = agreeing(empty_server)
    empty_server.kill()
    empty_server.start()
    assert agreeing(empty_server) == found, "of the latest rollout, though it is over"


ADDS = """
schema: 1
steps:
  - name: add
    python: {function: add}
    inputs: {numbers: $request.numbers}
    emit: [{kind: sum}]
"""


class PipelineCallers(Repeating):
    def __init__(self, server: Server) -> None:
        super().__init__(threads=2)
        self._runtime = server.client("sagemaker-runtime")

    def step(self) -> None:
        self._runtime.invoke_endpoint(
            EndpointName="shop", Body=b'{"numbers": [1, 2]}', ContentType="application/json"
        )


def test_a_pipeline_is_held_to_its_events(empty_server: Server, tmp_path: Path) -> None:
    for name, off in (("old", 0.0), ("new", 0.0001), ("wrong", 1.0)):
        code = f"def add(numbers):\n    return {{'sum': sum(numbers) + {off}}}\n"
        empty_server.prepare(name, pipeline(tmp_path / name, ADDS, code))
    client = empty_server.client("sagemaker")
    client.create_endpoint(EndpointName="shop", EndpointConfigName="old")
    empty_server.wait_in_service("shop")
    with PipelineCallers(empty_server):
        update(client, "wrong", "scores tolerance=0.01 slower=0")
        assert "answers disagree" in settled(client)["FailureReason"]
        update(client, "new", "scores tolerance=0.01 slower=0")
        assert settled(client)["EndpointConfigName"] == "new"


def test_a_change_of_routing_alone_is_rolled_out_as_a_model_is(
    empty_server: Server, tmp_path: Path
) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 0)) as client:
        routing = {"RoutingStrategy": "RANDOM"}
        empty_server.config("new", ModelName="old", RoutingConfig=routing)
        update(client, "new", "exact slower=0")
        [variant] = settled(client)["ProductionVariants"]
    assert variant["RoutingConfig"] == routing


def baking(server: Server) -> None:
    wait_until(lambda: (story(server)["progress"] or {}).get("stage") == "baking", "a bake", 60)


def order(server: Server, what: str) -> int:
    return server.post(f"/admin/endpoints/shop/rollout/{what}", b"")[0]


def test_an_operator_pauses_resumes_and_aborts(empty_server: Server, tmp_path: Path) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 0), new=(0.0, 0)) as client:
        update(client, "new", "exact slower=0 mirror=0.001", wait_s=0)
        baking(empty_server)
        assert order(empty_server, "pause") == 200
        assert story(empty_server)["progress"]["order"] == "pause"
        assert order(empty_server, "resume") == 200
        assert story(empty_server)["progress"]["order"] == ""
        assert order(empty_server, "abort") == 200
        described = settled(client)
        assert described["EndpointConfigName"] == "old"
        assert "an operator ordered it back" in described["FailureReason"]
        assert order(empty_server, "abort") == 409, "no rollout is under way"


def test_an_operator_promotes_what_is_not_proved(empty_server: Server, tmp_path: Path) -> None:
    with shop(empty_server, tmp_path, old=(0.0, 0), new=(0.5, 0)) as client:
        update(client, "new", "exact slower=0 mirror=0.001")
        baking(empty_server)
        assert order(empty_server, "promote") == 200
        assert settled(client)["EndpointConfigName"] == "new"
