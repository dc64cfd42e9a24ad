"""Triton models without config.pbtxt, and in several versions, by an unmodified tritonclient."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import triton_files
from tests.kit.environments import python_of
from tests.kit.servers import Server

pytestmark = [pytest.mark.system, pytest.mark.integration]

SCRIPT = Path(__file__).parent / "scripts" / "triton_versions.py"
CONFIG = """
platform: "onnxruntime_onnx"
version_policy { latest { num_versions: 2 } }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("triton")
    started = Server(folder / "state").start()
    model = folder / "repository" / "affine"
    for version in (1, 2, 3):
        made = triton_files.affine(folder / f"made{version}", factor=version)
        shutil.copytree(made / "1", model / str(version))
    shutil.copytree(folder / "made1" / "1", folder / "bare" / "1")
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "labels.txt").write_text("cat\nbird\ndog\n")
    started.deploy("versions", model.parent)
    started.deploy("bare", folder / "bare")
    yield started
    started.stop()


def test_tritonclient_names_versions_and_reads_the_whole_configuration(server: Server) -> None:
    addresses = f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"
    python = str(python_of("client-tritonclient"))
    done = subprocess.run(
        [python, str(SCRIPT), *addresses, "versions"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for door, seen in json.loads(done.stdout).items():
        answers = seen["answers"]
        assert answers[""] == ["3", "3.000000:2:dog"], door
        assert answers["3"] == answers[""], door
        for missing in ("1", "7"):
            assert f"has no version {missing}; it has 2, 3" in answers[missing], door
        assert seen["versions"] == ["2", "3"], door
        assert seen["index"] == [["2", "READY"], ["3", "READY"]], door
        assert seen["ready"] == [True, True], door
        assert seen["groups"] == [["affine", 1]], door
        assert seen["policy"] == {"latest": {"num_versions": 2}}, door
        assert seen["rows_max"] == 4, door
        assert seen["input"] == [["x", "TYPE_FP32", [4] if door == "http" else ["4"]]], door


def test_a_model_without_a_configuration_is_complete(server: Server) -> None:
    told = server.get("/v2/models/bare")
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    config = server.get("/v2/models/bare/config")
    assert (config["name"], config["default_model_filename"]) == ("bare", "model.onnx")
    data = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}
    status, answer = server.post("/v2/models/bare/infer", json.dumps({"inputs": [data]}).encode())
    assert status == 200, answer
    assert json.loads(answer)["outputs"][0]["data"] == [0.0, 0.5, 1.0]


def test_a_path_that_is_none_of_the_protocols_is_not_found(server: Server) -> None:
    for path in ("/v2/nothing", "/v2/health/nothing"):
        assert server.post(path, b"{}")[0] == 404
