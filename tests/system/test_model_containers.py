"""Models of several containers, Serial and Direct: of this project's runtimes, and of images."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit import model_files
from tests.kit.container_images import containers_of, engine, image
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server
from tests.kit.transform import TransformSite, transform_site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

#: Adds what it sees to a list; fails or dies where the body names it.
SEES = """
import json, os

def model_fn(model_dir):
    return os.environ["NAME"]

def transform_fn(name, body, content_type, accept):
    text = body if isinstance(body, str) else body.decode()
    if f"{name} fails" in text:
        raise ValueError("this can't be")
    if f"{name} dies" in text:
        os._exit(9)
    seen = json.loads(text) if content_type.startswith("list/") else [text]
    seen.append([name, content_type, accept])
    return json.dumps(seen), f"list/{name}"
"""
#: Four numbers of a line of CSV -> the tensors of `affine`.
READS = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    text = body if isinstance(body, str) else body.decode()
    rows = [[float(each) for each in line.split(",")] for line in text.splitlines()]
    return json.dumps(rows), "application/json"
"""
#: What the first tensor of an answer has, as a line of CSV.
WRITES = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    value = json.loads(body)
    while isinstance(value, dict):
        value = next(iter(value.values()))
    assert accept == "text/csv", accept
    return "\\n".join(",".join(map(str, row)) for row in value), "text/csv"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformSite]:
    with transform_site(tmp_path_factory.mktemp("containers")) as made:
        yield made


@pytest.fixture(scope="module")
def server(site: TransformSite) -> Server:
    return site.server


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts")
    python_model(folder / "sees", SEES)
    python_model(folder / "reads", READS)
    python_model(folder / "writes", WRITES)
    python_model(folder / "echo", BUSY_ECHO)
    model_files.affine(folder / "affine")
    return folder


def sees(artifacts: Path, name: str, **environment: str) -> dict[str, Any]:
    return {
        "ModelDataUrl": (artifacts / "sees").as_uri(), "Environment": {"NAME": name} | environment,
    }  # fmt: skip


def create(server: Server, name: str, *containers: dict[str, Any], **members: Any) -> None:
    server.client("sagemaker").create_model(ModelName=name, Containers=list(containers), **members)


def direct(server: Server, name: str, *containers: dict[str, Any]) -> None:
    create(server, name, *containers, InferenceExecutionConfig={"Mode": "Direct"})
    server.endpoint(name)


def asked(server: Server, endpoint: str, body: bytes = b"x", **members: Any) -> Any:
    answer = server.runtime.invoke_endpoint(EndpointName=endpoint, Body=body, **members)
    return answer["ContentType"], json.loads(answer["Body"].read())


def test_each_answer_is_the_next_request(server: Server, artifacts: Path) -> None:
    """Content types follow the answers; Accept is for the last container alone."""
    default = {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "list/of-b"}
    create(
        server, "serial", sees(artifacts, "a"), sees(artifacts, "b", **default),
        sees(artifacts, "c"),
    )  # fmt: skip
    server.endpoint("serial")
    kind, seen = asked(server, "serial", ContentType="text/mine", Accept="list/last")
    assert kind == "list/c"
    assert seen == [
        "x",
        ["a", "text/mine", "application/json"],
        ["b", "list/a", "list/of-b"],
        ["c", "list/b", "list/last"],
    ]
    for name in ("container-1", "container-3"):
        of = {"EndpointName": "serial", "VariantName": "all", "ContainerName": name}
        latency = partial(server.datapoints, "ContainerLatency", "Average", **of)
        [microseconds] = wait_until(latency, f"the latency of {name}", 60)
        assert microseconds > 0
        assert server.datapoints("Invocations", "Sum", **of) == [1.0]
    images = server.client("sagemaker").describe_endpoint(EndpointName="serial")
    assert "DeployedImages" not in images["ProductionVariants"][0]
    server.delete("serial")


def test_an_error_names_its_container(server: Server, artifacts: Path) -> None:
    create(server, "errs", *(sees(artifacts, name) for name in "abc"))
    server.endpoint("errs")
    for number, name in enumerate("abc", 1):
        with pytest.raises(ClientError) as failed:
            asked(server, "errs", f"{name} fails".encode(), ContentType="text/plain")
        told = failed.value.response
        assert told["Error"]["Code"] == "ModelError"
        assert (
            f"server error (500) from container-{number} with message" in (told["Error"]["Message"])
        )
        assert "this can't be" in told["OriginalMessage"]
        assert told["OriginalStatusCode"] == 500
    assert asked(server, "errs", ContentType="text/plain")[1][0] == "x"
    server.delete("errs")


def test_the_named_container_answers_alone(server: Server, artifacts: Path) -> None:
    containers = [sees(artifacts, name) | {"ContainerHostname": f"of-{name}"} for name in "ab"]
    affine = {
        "ModelDataUrl": (artifacts / "affine").as_uri(), "Image": "local://openvino",
        "ContainerHostname": "numbers",
    }  # fmt: skip
    direct(server, "direct", *containers, affine)
    for name in "ab":
        kind, seen = asked(
            server, "direct", ContentType="text/x", Accept="list/y",
            TargetContainerHostname=f"of-{name}",
        )  # fmt: skip
        assert (kind, seen) == (f"list/{name}", ["x", [name, "text/x", "list/y"]])
    answer = server.runtime.invoke_endpoint(
        EndpointName="direct", Body=b"1,2,3,4", ContentType="text/csv", Accept="text/csv",
        TargetContainerHostname="numbers",
    )  # fmt: skip
    assert answer["Body"].read().strip() == b"30.0,35.0,40.0"
    for members, words in (
        ({}, "needs a TargetContainerHostname.* of-a, of-b, numbers"),
        ({"TargetContainerHostname": "of-c"}, "no container of-c.* of-a, of-b, numbers"),
    ):
        with pytest.raises(ClientError, match=words) as refused:
            asked(server, "direct", **members)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert refused.value.response["Error"]["Code"] == "ValidationError"
    server.delete("direct")


def test_a_container_is_named_only_where_requests_choose(server: Server, artifacts: Path) -> None:
    create(server, "unnamed", sees(artifacts, "a"), sees(artifacts, "b"))
    server.endpoint("unnamed")
    with pytest.raises(ClientError, match="takes no TargetContainerHostname"):
        asked(server, "unnamed", TargetContainerHostname="container-1")
    server.delete("unnamed")


def test_one_that_does_not_load_is_the_reason(server: Server, artifacts: Path) -> None:
    create(server, "bad", sees(artifacts, "a"), {"ModelDataUrl": (artifacts / "none").as_uri()})
    server.endpoint("bad", wait=False)
    reason = server.settled("bad", seconds=120)["FailureReason"]
    assert "container container-2: " in reason, reason
    server.delete("bad")
    broken = {"ModelDataUrl": (artifacts / "sees").as_uri()}  # its code needs NAME
    create(server, "broken", sees(artifacts, "a"), broken)
    server.endpoint("broken", wait=False)
    reason = server.settled("broken", seconds=120)["FailureReason"]
    assert "container container-2: " in reason, reason
    server.delete("broken")


def test_nothing_is_lost_while_workers_of_containers_die(server: Server, artifacts: Path) -> None:
    create(server, "killed", *[{"ModelDataUrl": (artifacts / "echo").as_uri()}] * 2)
    server.endpoint("killed", InitialInstanceCount=2)
    with Load(server.port, "/endpoints/killed/invocations", workers=4) as load:
        for turn in range(4):
            before = load.answered
            wait_until(lambda least=before + 20: load.answered > least, "answers", 60)
            wait_until(lambda: len(server.ready_copies("killed")) == 2, "two copies", 60)
            pids = server.ready_copies("killed")[turn % 2]["worker_pids"]
            os.kill(pids[turn // 2 % len(pids)], signal.SIGKILL)
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    server.delete("killed")


def test_a_job_goes_through_all_containers(site: TransformSite, artifacts: Path) -> None:
    create(
        site.server, "table",
        *({"ModelDataUrl": (artifacts / name).as_uri()} for name in ("reads", "affine", "writes")),
    )  # fmt: skip
    site.put("rows/a.csv", ["1,2,3,4"] * 50)
    site.begin("job", "table", site.uri("rows"))
    assert site.ended("job")["TransformJobStatus"] == "Completed"
    assert site.outputs("job") == {"a.csv.out": "30.0,35.0,40.0\n" * 50}


def test_images_and_runtimes_are_mixed(server: Server, artifacts: Path) -> None:
    """The image's server tells the headers that it gets, and says lists as they are."""
    engine()
    create(server, "mixed", {"Image": image()}, sees(artifacts, "b"), {"Image": image()})
    server.endpoint("mixed")
    kind, seen = asked(server, "mixed", ContentType="text/mine", Accept="list/last")
    assert kind == "application/json"
    told = json.loads(seen[0])
    assert told["body"] == "x"
    assert told["headers"]["content-type"] == "text/mine"
    assert "list/last" not in told["headers"].values()
    assert seen[1] == ["b", "application/json", "application/json"]
    assert len(containers_of("mixed")) == 2
    described = server.client("sagemaker").describe_endpoint(EndpointName="mixed")
    deployed = described["ProductionVariants"][0]["DeployedImages"]
    assert [each["SpecifiedImage"] for each in deployed] == [image()] * 2
    with pytest.raises(ClientError, match=r"from container-2 with message .*can't be"):
        asked(server, "mixed", b"b fails", ContentType="text/plain")
    server.delete("mixed")
    wait_until(lambda: not containers_of("mixed"), "nothing left", 30)
