"""Models inside a pipeline's artifact: `model` steps, and `when` that chooses among them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files, triton_files
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance
from tests.kit.polling import wait_until
from tests.kit.processes import pids_in
from tests.kit.python_models import pipeline

DECLARED = """
schema: 1
steps:
  - name: prepare
    python: {function: prepare}
    inputs: {texts: $request.texts}
  - name: small
    model: {folder: models/small}
    when: {value: $request.encoder, is: small}
    inputs: {x: $prepare.rows}
    emit: [{kind: embedding, data: {vectors: $piece.y}}]
  - name: large
    model: {folder: models/large}
    when: {value: $request.encoder, is: [large, huge]}
    inputs: {x: $prepare.rows}
    emit: [{kind: embedding, data: {sums: $piece.sum}}]
  - name: count
    python: {function: count}
    inputs: {vectors: $small.y}
    emit: [{kind: count, data: $piece}]
"""
CODE = """
def prepare(texts):
    return {"rows": [[float(ord(c) - 96) for c in text] for text in texts]}

def count(vectors):
    return {"rows": None if vectors is None else len(vectors)}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    folder = tmp_path_factory.mktemp("models")
    artifact = pipeline(folder / "artifact", DECLARED, CODE)
    model_files.affine(artifact / "models" / "small")
    model_files.row_sums(artifact / "models" / "large")
    with instance(folder) as running:
        running.client().serve(1, artifact)
        yield running


def asked(client: FrameClient, encoder: str, *texts: str) -> dict[str, Any]:
    """The data of each event, by its kind."""
    body = json.dumps({"encoder": encoder, "texts": list(texts)}).encode()
    events = client.invoke(1, body, door="runtime").json["events"]
    return {each["event"]: each["data"] for each in events}


def test_the_request_chooses_its_encoder_and_the_other_is_skipped(served: InstanceProcess) -> None:
    """A skipped step is null to those that take from it."""
    client = served.client()
    said = asked(client, "small", "abcd", "aaaa")
    rows = np.array([[1.0, 2, 3, 4], [1, 1, 1, 1]])
    expected = rows @ model_files.weights()
    np.testing.assert_allclose(said["embedding"]["vectors"], expected, rtol=1e-5)
    assert said["count"] == {"rows": 2}
    assert said["done"]["steps"] == {
        "prepare": "done", "small": "done", "large": "skipped", "count": "done",
    }  # fmt: skip
    said = asked(client, "huge", "abcd", "aaaa")
    assert said["embedding"] == {"sums": [10.0, 4.0]}
    assert said["count"] == {"rows": None}
    assert said["done"]["steps"]["small"] == "skipped"
    assert sorted(asked(client, "none", "abcd")) == ["count", "done"]


def test_steps_and_models_tell_what_they_did(served: InstanceProcess) -> None:
    client = served.client()
    asked(client, "small", "abcd")
    told = client.control(op="explain", copy=1)
    assert told["models"]["models/small"]["requests"] == told["pipeline"]["steps"]["small"]["calls"]
    assert told["pipeline"]["steps"]["small"]["failed"] == 0


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["abc"], "step 'small': input 'x' has shape [1, 3]"),
        (["abcd", "ab"], "step 'small': small: input 'x'"),
    ],
)
def test_inputs_that_are_no_tensors_of_the_model_are_told_with_the_step(
    served: InstanceProcess, texts: list[str], words: str
) -> None:
    body = json.dumps({"encoder": "small", "texts": texts}).encode()
    error = served.client().invoke(1, body, door="runtime").error
    assert words in error["message"]
    assert error["original_status"] == 500, "a step made them"


BLAMED = """
schema: 1
steps:
  - name: prepare
    python: {function: prepare}
    inputs: {how: $request.how}
  - name: made
    model: {folder: models/small}
    when: {value: $request.take, is: made}
    inputs: {x: $prepare.rows}
    emit: [{kind: embedding, data: {vectors: $piece.y}}]
  - name: sent
    model: {folder: models/small}
    when: {value: $request.take, is: sent}
    inputs: {x: $request.rows}
    emit: [{kind: embedding, data: {vectors: $piece.y}}]
  - name: told
    python: {function: told}
    when: {value: $request.take, is: told}
    inputs: {rows: $prepare.rows}
    emit: [{kind: embedding, data: $piece.nothing}]
"""
BLAMED_CODE = """
def prepare(how):
    return {"raises": lambda: None + 1, "words": lambda: {"rows": [["a"]]}, "none": lambda: {},
            "short": lambda: {"rows": [[1.0]]}, "good": lambda: {"rows": [[1.0] * 4]}}[how]()

def told(rows):
    return {"rows": rows}
"""


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"how": "raises", "take": "made"}, 500),  # a TypeError in a step
        ({"how": "words", "take": "made"}, 500),
        ({"how": "short", "take": "made"}, 500),
        ({"how": "none", "take": "made"}, 500),
        ({"how": "good", "take": "told"}, 500),
        ({"how": "good", "take": "sent", "rows": [["a"]]}, 400),
        ({"how": "good", "take": "sent", "rows": [[1.0]]}, 400),
        ({"how": "good", "take": "sent"}, 400),
        ({"take": "made"}, 400),
    ],
)
def test_what_a_step_made_wrong_is_the_models_failure_and_not_the_callers(
    asked: dict[str, Any], status: int, blamed: InstanceProcess
) -> None:
    """At SageMaker's door both are 424; the model's own status says whose fault it is."""
    answer = blamed.client().invoke(1, json.dumps(asked).encode(), door="runtime")
    assert (answer.error["status"], answer.error["original_status"]) == (424, status)


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    folder = tmp_path_factory.mktemp("blamed")
    artifact = pipeline(folder / "artifact", BLAMED, BLAMED_CODE)
    model_files.affine(artifact / "models" / "small")
    with instance(folder) as running:
        running.client().serve(1, artifact)
        yield running


KILLED = """
schema: 1
steps:
  - name: say
    python: {function: say}
    inputs: {rows: $request.rows}
    emit: [{kind: text, data: {text: $piece.text}}]
  - name: slow
    model: {folder: models/slow}
    inputs: {x: $say.rows}
    emit: [{kind: vectors, data: $piece.y}]
"""
SAYS = """
def say(rows):
    return {"text": "one moment", "rows": rows}
"""
SLOW = """
class TritonPythonModel:
    def execute(self, requests):
        print("computes now", flush=True)
        time.sleep(0.5)
        return [answer(y=given(request, "x")) for request in requests]
"""


def test_a_model_step_whose_process_is_killed_is_run_again_behind_what_was_said(
    tmp_path: Path,
) -> None:
    """The request is not given back: a stream that has begun could not begin again."""
    artifact = tmp_path / "artifact"
    (artifact / "code").mkdir(parents=True)
    (artifact / "pipeline.yaml").write_text(KILLED)
    (artifact / "code" / "steps.py").write_text(SAYS)
    tensor = [("FP32", [2])]
    triton_files.python(
        artifact / "models" / "slow", SLOW,
        inputs=[("x", *tensor[0])], outputs=[("y", *tensor[0])],
    )  # fmt: skip
    with instance(tmp_path) as running:
        client = running.client()
        client.serve(1, artifact)
        ident = client.send(1, json.dumps({"rows": [[1.0, 2.0]]}).encode(), door="runtime")
        wait_until(lambda: "computes now" in running.log.read_text(), "the step computes")
        [victim] = pids_in("slow", below=running.process.pid)
        os.kill(victim, signal.SIGKILL)
        events = FrameAnswer(client.answer(ident)).json["events"]
        assert {each["event"]: each["data"] for each in events}["vectors"] == [[1.0, 2.0]]
        client.close()
