"""Warm-up, as a real instance does it: a model answers its own requests before others'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from test_model_host import ModelHostClient, packed
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, instance

REMEMBERS = """
CALLS = []
def model_fn(model_dir):
    return None
def input_fn(data, content_type):
    return [content_type, data if isinstance(data, str) else data.decode()]
def predict_fn(data, model):
    if "fail" in data[1]:
        raise ValueError("this one fails")
    CALLS.append(data)
    return CALLS
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FrameClient]:
    with instance(tmp_path / "run") as running:
        made = running.client()
        yield made
        made.close()


def remembering(folder: Path, *warmup: dict[str, Any], **fields: Any) -> Path:
    """Answers with every request that its worker has had."""
    return model_files.code(folder, REMEMBERS, rows_max=1, warmup=list(warmup), **fields)


def test_requests_of_a_description_are_answered_before_the_model_counts_as_loaded(
    client: FrameClient, tmp_path: Path
) -> None:
    folder = remembering(
        tmp_path / "model",
        {"body": '{"x": 1}', "times": 2},
        {"file": "warmup/lines.csv"},
        {"file": "warmup/other.bin", "content_type": "text/other"},
    )
    (folder / "warmup").mkdir()
    (folder / "warmup" / "lines.csv").write_text("1,2")
    (folder / "warmup" / "other.bin").write_text("bin")
    client.serve(1, folder)
    # The copy that serves has not answered any yet.
    [status] = client.control(op="status")["copies"]
    assert (status["requests"], status["batches"]) == (0, 0)
    assert client.invoke(1, b"{}", content_type="application/json").json == [
        ["application/json", '{"x": 1}'],
        ["application/json", '{"x": 1}'],
        ["text/csv", "1,2"],
        ["text/other", "bin"],
        ["application/json", "{}"],
    ]


def test_every_lane_is_warmed_up(client: FrameClient, tmp_path: Path) -> None:
    folder = remembering(tmp_path / "model", {"body": "{}", "times": 2}, lanes=3)
    assert client.load(1, folder).get("ok")
    idents = [client.send(1, b"{}", content_type="application/json") for _ in range(3)]
    answers = [FrameAnswer(client.answer(ident)).json for ident in idents]
    # At once in three lanes, or one after the other: no worker is cold.
    assert all(len(calls) >= 3 for calls in answers)


def test_a_request_that_fails_fails_the_load_and_says_which_and_why(
    client: FrameClient, tmp_path: Path
) -> None:
    folder = remembering(tmp_path / "m", {"body": "{}"}, {"name": "sad", "body": '{"fail": 1}'})
    error = client.load(1, folder)["error"]
    assert error["code"] == "warmup-failed"
    assert error["message"].startswith("warm-up request sad was not answered: ")
    assert "this one fails" in error["message"]
    status = client.control(op="status")
    assert (status["copies"], status["loading"]) == ([], [])
    # Nothing of it is left in the way of the next one.
    assert client.load(1, remembering(tmp_path / "good")).get("ok")


def test_a_file_that_is_not_there_fails_the_load_by_its_name(
    client: FrameClient, tmp_path: Path
) -> None:
    folder = remembering(tmp_path / "m", {"file": "warmup/absent.json"})
    error = client.load(1, folder)["error"]
    assert error["code"] == "warmup-failed"
    assert "absent.json" in error["message"]


def test_tensors_go_through_the_models_own_codec(client: FrameClient, tmp_path: Path) -> None:
    folder = model_files.affine(tmp_path / "affine")
    description = yaml.safe_load((folder / "model.yaml").read_text())
    [tensor] = client.load(1, folder)["description"]["inputs"]

    def with_warmup(**fields: Any) -> dict[str, Any]:
        entry = {"name": tensor["name"], "dtype": "FP32", "shape": [2, 4]} | fields
        described = description | {"warmup": [{"tensors": [entry]}]}
        (folder / "model.yaml").write_text(yaml.safe_dump(described))
        reply = client.load(2, folder)
        client.control(op="unload", copy=2)
        return reply

    assert with_warmup().get("ok")
    assert with_warmup(fill="random").get("ok")
    (folder / "rows").write_bytes(np.ones((2, 4), np.float32).tobytes())
    assert with_warmup(file="rows").get("ok")
    wrong = with_warmup(shape=[2, 5])["error"]
    assert wrong["code"] == "warmup-failed"
    assert "warm-up request 1" in wrong["message"]


def test_tritons_samples_warm_up_its_model(client: FrameClient, tmp_path: Path) -> None:
    folder = tmp_path / "triton"
    model_files.affine(folder / "m" / "made")
    (folder / "m" / "1").mkdir()
    (folder / "m" / "made" / "model.onnx").rename(folder / "m" / "1" / "model.onnx")

    def config(dims: int) -> str:
        return f"""
        backend: "onnxruntime" max_batch_size: 8
        model_warmup {{
          name: "ones" batch_size: 2
          inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: {dims} random_data: true }} }}
        }}"""

    (folder / "m" / "config.pbtxt").write_text(config(4))
    client.serve(1, folder)
    (folder / "m" / "config.pbtxt").write_text(config(5))
    error = client.load(2, folder)["error"]
    assert error["code"] == "warmup-failed"
    assert "warm-up request ones" in error["message"]


def test_a_target_model_is_warm_before_its_first_caller_is_answered_and_fails_alone(
    tmp_path: Path,
) -> None:
    prefix = tmp_path / "models"
    good = remembering(tmp_path / "good", {"body": '{"warm": 1}'})
    packed(good, prefix / "good.tar.gz")
    packed(remembering(tmp_path / "bad", {"body": "fail"}), prefix / "bad.tar.gz")
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        host = ModelHostClient(running, prefix)
        assert host.load().get("ok")
        assert host.ask("good.tar.gz", 5).json == [
            ["application/json", '{"warm": 1}'],
            ["application/json", '{"x": 5}'],
        ]
        error = host.ask("bad.tar.gz").error
        assert error["code"] == "warmup-failed"
        assert "this one fails" in error["message"]
        assert len(host.ask("good.tar.gz").json) == 3
        host.client.close()


def test_a_pipelines_steps_are_warmed_up_and_its_copy_answers(
    client: FrameClient, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    (folder / "code").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(
        "schema: 1\n"
        "steps:\n"
        "  - name: count\n"
        "    python: {function: count}\n"
        "    inputs: {by: $request.by}\n"
        "    emit: [{kind: total, data: {total: $piece}}]\n"
    )
    (folder / "code" / "steps.py").write_text(
        "TOTAL = [0]\ndef count(by):\n    TOTAL[0] += by\n    return TOTAL[0]\n"
    )
    model_files.describe(folder, runtime="pipeline", warmup=[{"body": '{"by": 5}', "times": 2}])
    client.serve(1, folder)
    answer = client.invoke(1, b'{"by": 1}', content_type="application/json")
    assert b'"total":11' in answer.body
