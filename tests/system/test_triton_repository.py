"""A Triton repository with several models as one endpoint, by unmodified clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.kit import triton_files as files
from tests.kit.multi_model import create_multi_model
from tests.kit.polling import wait_until
from tests.kit.processes import instances_of
from tests.kit.servers import Server, penstock
from tests.kit.triton_repositories import ANSWER, archived, repository
from tests.system.test_clients import client_python, tour

pytestmark = [pytest.mark.system, pytest.mark.integration]

IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"
JSON = "application/json"
#: The models of the repository that nothing keeps from being loaded.
ALONE = {"affine", "asker", "back", "chain", "counter", "mortal", "relay", "wants"}


def deployed(server: Server, name: str, folder: Path, *options: str) -> str:
    return penstock("deploy", name, str(folder), "--quiet", *options, server=server).stderr


def body(what: str = "") -> bytes:
    tensors: list[dict[str, Any]] = [
        {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 2]}
    ]
    if what:
        tensors.append({"name": "what", "datatype": "BYTES", "shape": [1, 1], "data": [what]})
    return json.dumps({"inputs": tensors}).encode()


def ready(server: Server) -> set[str]:
    index = json.loads(server.post("/v2/repository/index", b'{"ready": true}')[1])
    return {row["name"] for row in index}


def output(answer: bytes) -> list[float]:
    return list(json.loads(answer)["outputs"][0]["data"])


def test_every_model_of_a_repository_answers_under_its_own_name(
    empty_server: Server, tmp_path: Path
) -> None:
    server, root = empty_server, repository(tmp_path / "repository")
    assert "served as @models" in deployed(server, "chain", root)
    wait_until(lambda: ready(server) >= ALONE, "what can be loaded is, at the start", 60)
    addresses = f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"
    for door, seen in tour(
        client_python("tritonclient"), "triton_repository.py", *addresses
    ).items():
        assert seen["unloaded"] == [False, "UNAVAILABLE"], door
        assert seen["called"] == [ANSWER], door
        assert seen["by a call"] == [True, "READY"], door
        assert seen["chain"] == [[ANSWER], "chain"], door
        assert seen["with its steps"] == [True, True], door
        assert seen["without its steps"] == [False, False], door
        assert seen["metadata"] == ["asker", ["y", "said"]], door
        assert seen["config"] == ["affine", "affine_0"], door
        assert seen["statistics"] == ["affine"], door
        assert float(seen["streamed"]) == pytest.approx(sum(ANSWER)), door
        assert seen["index"] == sorted(path.name for path in root.iterdir()), door
        nobody, itself, short, loaded, unknown = seen["refusals"]
        assert nobody[0] in ("404", "StatusCode.NOT_FOUND"), door
        assert "asker -> asker" in itself[1], door
        assert "short/config.pbtxt, step 0 (nobody)" in short[1], door
        assert "short/config.pbtxt, step 0 (nobody)" in loaded[1], door
        assert unknown[0] in ("404", "StatusCode.NOT_FOUND"), door
        for each in seen["refusals"]:
            assert str(server.state_dir) not in each[1], (door, each)
            assert "/artifacts/" not in each[1], (door, each)


def test_a_second_repository_is_served_as_the_names_of_its_models(
    empty_server: Server, tmp_path: Path
) -> None:
    deployed(empty_server, "first", repository(tmp_path / "first"))
    second = files.affine(tmp_path / "second" / "twice", factor=2).parent
    files.affine(second / "thrice", factor=3)
    assert "served as thrice=thrice, twice=twice" in deployed(empty_server, "second", second)
    for name, factor in (("affine", 1), ("twice", 2), ("thrice", 3)):
        status, answer = empty_server.post(f"/v2/models/{name}/infer", body())
        assert (status, output(answer)) == (200, [factor * each for each in ANSWER]), name
    index = json.loads(empty_server.post("/v2/repository/index", b"")[1])
    names = [row["name"] for row in index]
    own = {path.name for path in (tmp_path / "first").iterdir()} | {"twice", "thrice"}
    assert sorted(names) == sorted(own), "each model once, and no endpoint beside them"


def test_the_call_that_is_printed_for_a_repository_works(
    empty_server: Server, tmp_path: Path
) -> None:
    root = files.affine(tmp_path / "repository" / "one").parent
    files.affine(root / "two", factor=2)
    deployed(empty_server, "pair", root)
    wait_until(lambda: ready(empty_server) == {"one", "two"}, "both are loaded", 60)
    said = penstock("describe", "pair", server=empty_server).stdout
    line = next(line for line in said.splitlines() if line.strip().startswith("curl "))
    called = subprocess.run(
        ["bash", "-c", f"{line} --fail --silent"], capture_output=True, text=True, check=False
    )
    assert called.returncode == 0, (line, called.stderr)
    assert json.loads(called.stdout) == {"predictions": [[0.0] * 3]}, line


def test_one_model_may_answer_for_a_repository(empty_server: Server, tmp_path: Path) -> None:
    root = files.embeddings(tmp_path / "repository")
    deployed(
        empty_server, "embed", root, "--env", "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME=embed"
    )  # fmt: skip
    index = json.loads(empty_server.post("/v2/repository/index", b"")[1])
    assert [row["name"] for row in index] == ["embed"]


def test_boto3_asks_a_prefix_of_tritons_archives_that_call_one_another(
    server: Server, tmp_path: Path
) -> None:
    """As AWS has it: Mode MultiModel, a Triton image, `model.tar.gz` each."""
    prefix = archived(repository(tmp_path / "made"), tmp_path / "prefix")
    create_multi_model(server, "archives", prefix, image=IMAGE)
    runtime = server.client("sagemaker-runtime")

    def asked(target: str, what: str = "") -> list[float]:
        answer = runtime.invoke_endpoint(
            EndpointName="archives", TargetModel=target, ContentType=JSON, Body=body(what)
        )
        return output(answer["Body"].read())

    assert asked("chain.tar.gz") == ANSWER
    for called in ("affine", "chain"):
        assert asked("asker.tar.gz", f"call {called}") == ANSWER
    server.client("sagemaker").delete_endpoint(EndpointName="archives")


def test_calls_go_on_when_a_called_process_dies_and_when_the_instance_is_killed(
    empty_server: Server, tmp_path: Path
) -> None:
    server = empty_server
    deployed(server, "mortals", repository(tmp_path / "repository"))

    def call(what: str) -> tuple[int, bytes]:
        return server.post("/v2/models/asker/infer", body(what))

    status, answer = call("call mortal")
    assert (status, output(answer)) == (200, [1.0, 0.0, 0.0])
    status, answer = call("die mortal")
    assert (status, b"the model 'mortal'" in answer) == (500, True), answer
    status, answer = call("call mortal")
    assert (status, output(answer)) == (200, [1.0, 0.0, 0.0])
    for pid in instances_of(server.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: call("call chain")[0] == 200, "the models are there again", 90)
    assert output(call("call chain")[1]) == ANSWER
