"""An instance may hold copies of different models: each is loaded, lost and dropped on its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, serving
from tests.kit.polling import wait_until

TENSORS, CODE, PIPELINE, LATE = 1, 2, 3, 4

SLOW = """
import time
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    time.sleep(data["sleep"])
    return data
"""

STEPS = """
schema: 1
steps:
  - name: answer
    value: {text: "You asked: ${request.question}"}
    emit: [{kind: text}]
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FrameClient]:
    """Of an instance that holds a model of tensors, one of Python code, and a pipeline."""
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "pipeline.yaml").write_text(STEPS)
    models = {
        TENSORS: model_files.affine(tmp_path / "affine"),
        CODE: model_files.code(tmp_path / "code", SLOW, rows_max=1),
        PIPELINE: steps,
    }
    with serving(tmp_path, models) as made:
        yield made


def copies(client: FrameClient) -> dict[int, dict[str, Any]]:
    return {each["copy"]: each for each in client.control(op="status")["copies"]}


def asks(client: FrameClient, copy: int) -> Any:
    bodies = {
        TENSORS: b"[[1, 0, 0, 2]]",
        CODE: b'{"sleep": 0}',
        PIPELINE: b'{"question": "Why?"}',
        LATE: b'{"inputs": [[1, 2]]}',
    }
    return client.invoke(copy, bodies[copy]).json


def serves(client: FrameClient, *wanted: int) -> None:
    """Each of these copies gives its own model's answer."""
    for copy in wanted:
        answer = asks(client, copy)
        if copy == TENSORS:
            assert answer == {"predictions": [[9.0, 10.5, 12.0]]}
        elif copy == CODE:
            assert answer == {"sleep": 0}
        elif copy == PIPELINE:
            assert "You asked: Why?" in str(answer)
        else:
            assert [row["sum"] for row in answer["predictions"]] == [3.0]


def test_copies_are_dropped_and_loaded_while_the_others_serve_on(
    client: FrameClient, tmp_path: Path
) -> None:
    serves(client, TENSORS, CODE, PIPELINE)
    assert {copy: each["requests"] for copy, each in copies(client).items()} == {
        TENSORS: 1, CODE: 1, PIPELINE: 1,
    }  # fmt: skip
    [worker] = copies(client)[CODE]["workers"]
    under_way = [client.send(CODE, b'{"sleep": 0.3}') for _ in range(2)]

    assert client.control(op="unload", copy=TENSORS) == {"ok": True, "found": True}
    assert client.invoke(TENSORS, b"[[1, 0, 0, 2]]").reason == "unknown-copy"
    assert [FrameAnswer(client.answer(each)).json for each in under_way] == [{"sleep": 0.3}] * 2
    serves(client, CODE, PIPELINE)

    client.serve(LATE, model_files.row_sums(tmp_path / "sums"))
    assert client.control(op="unload", copy=CODE) == {"ok": True, "found": True}
    wait_until(lambda: not Path(f"/proc/{worker['pid']}").exists(), "its worker is gone")
    serves(client, PIPELINE, LATE)
    seen = copies(client)
    assert {copy: each["state"] for copy, each in seen.items()} == {
        PIPELINE: "ready", LATE: "ready",
    }  # fmt: skip
    assert client.control(op="explain", copy=LATE)["requests"] == 1


def test_a_copy_whose_worker_died_is_lost_alone(client: FrameClient) -> None:
    running = client.send(CODE, b'{"sleep": 30}')
    [worker] = wait_until(
        lambda: copies(client)[CODE]["running"] and copies(client)[CODE]["workers"], "it runs"
    )
    os.kill(worker["pid"], signal.SIGKILL)
    assert FrameAnswer(client.answer(running)).reason == "worker-died"
    assert client.event("copy-lost")["copy"] == CODE
    serves(client, TENSORS, PIPELINE)
    assert client.event("copy-ready")["copy"] == CODE
    serves(client, TENSORS, CODE, PIPELINE)
    assert client.events == []
    assert {each["state"] for each in copies(client).values()} == {"ready"}
