"""Spans over which an instance ended: what is noted, what is run apart, what is not given.

Through a model of this process (rows) and through one of somebody's own code (request bodies).
"""

from __future__ import annotations

import json
import os
import platform
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until
from transform_spans import SpanJob, lines_job

from penstock.records.at_work import take_at_work

#: Doubles each number; a negative one takes its seconds.
CODE = """
import time
def model_fn(model_dir):
    return None
def transform_fn(model, body, content_type, accept):
    text = body if isinstance(body, str) else body.decode()
    numbers = [int(line) for line in text.splitlines()]
    for number in numbers:
        if number < 0:
            time.sleep(-number)
    return "".join(f"{2 * number}\\n" for number in numbers), accept
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("instance"), artifact={"isolation": False}) as running:
        yield running


def doubles(folder: Path) -> Path:
    """The same as a graph."""
    model_files.write_onnx(
        folder / "model.onnx",
        [helper.make_node("Mul", ["x", "two"], ["y"])],
        [model_files.value("x", TensorProto.INT64, ["rows", 1])],
        [model_files.value("y", TensorProto.INT64, ["rows", 1])],
        [("two", np.array([[2]], dtype=np.int64))],
    )
    return model_files.tensor_model(folder, runtime="onnxruntime")


def numbers(folder: Path, count: int, **special: int) -> SpanJob:
    lines = [str(n) for n in range(count)]
    for at, value in special.items():
        lines[int(at.removeprefix("at_"))] = str(value)
    return lines_job(folder, lines, content_type="text/csv", accept="text/csv")


def loaded(running: InstanceProcess, copy: int, folder: Path, kind: str) -> Any:
    client = running.client()
    model = doubles(folder / "m") if kind == "rows" else model_files.code(folder / "m", CODE)
    assert client.load(copy, model, endpoint="transform-job/j")["ok"]
    return client


def notes(folder: Path) -> list[str]:
    return [path.name for path in (folder / "parts").glob(".*")]


@pytest.mark.parametrize(("kind", "copy"), [("rows", 1), ("bodies", 2)])
def test_suspects_are_run_apart_and_nothing_is_committed(
    shared: InstanceProcess, tmp_path: Path, kind: str, copy: int
) -> None:
    client = loaded(shared, copy, tmp_path, kind)
    job = numbers(tmp_path, 20)
    call = job.call(copy) | {"noted": True, "apart": [[3], [5, 17]], "refused": [[5, "signal 8"]]}
    reply = client.control(**call)
    assert (reply["ok"], reply["passed"]) == (True, True), reply
    assert list((tmp_path / "parts").iterdir()) == []


@pytest.mark.parametrize(("kind", "copy"), [("rows", 3), ("bodies", 4)])
def test_a_refused_record_is_not_given_to_the_model(
    shared: InstanceProcess, tmp_path: Path, kind: str, copy: int
) -> None:
    """The code would sleep for as long as the number says, the graph would answer."""
    client = loaded(shared, copy, tmp_path, kind)
    job = numbers(tmp_path, 20, at_7=-1000)
    done = client.control(**job.call(copy) | {"noted": True, "refused": [[7, "by signal 8"]]})
    assert (done["records"], done["refused"]) == (20, 1), done
    assert job.outputs() == [str(2 * n) for n in range(20) if n != 7]
    [refused] = job.refused()
    assert (refused["record"], refused["offset"]) == (7, 14)
    assert refused["error"]["code"] == "model-worker-died"
    assert refused["error"]["message"].endswith("and no other: by signal 8")
    assert notes(tmp_path) == []


def test_bodies_that_are_at_work_when_the_instance_ends_are_told(tmp_path: Path) -> None:
    """Each record is a body, and two are asked at once; the others have not begun or are over."""
    with instance(tmp_path / "i", artifact={"isolation": False}) as running:
        client = loaded(running, 1, tmp_path, "bodies")
        job = numbers(tmp_path, 20, at_7=-1000)
        job = job.with_(strategy="SingleRecord", concurrency_max=2)
        client.begin_control(**job.call(1) | {"noted": True})
        uri = (tmp_path / "parts").as_uri()
        noted = tmp_path / "parts" / ".at-work-000000-000000"

        def under_way() -> set[int]:
            """Records that the note has now; read without taking it."""
            open_: dict[int, int] = {}
            for line in noted.read_bytes().splitlines() if noted.exists() else ():
                number, *ranges = json.loads(line)
                if ranges:
                    open_[number] = ranges[0][0][0]
                else:
                    del open_[number]
            return set(open_.values())

        wait_until(lambda: under_way() == {7, 8}, "the next one waits behind it")
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(20)
        assert take_at_work(uri, job.whole) == (7, 8)


def test_an_apart_run_that_is_stopped_leaves_nothing(
    shared: InstanceProcess, tmp_path: Path
) -> None:
    client = loaded(shared, 5, tmp_path, "bodies")
    job = numbers(tmp_path, 3, at_1=-1)
    ident = client.begin_control(**job.call(5) | {"noted": True, "apart": [[1], [2]]})
    wait_until(lambda: notes(tmp_path), "it runs")
    other = shared.client()
    assert other.control(op="transform-stop", job=job.name)["count"] == 1
    assert client.result(ident)["error"]["code"] == "transform-stopped"
    assert notes(tmp_path) == []


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86 processors raise a fault for this division"
)
def test_a_row_that_ends_instances_is_told_by_their_notes_until_it_is_refused(
    tmp_path: Path,
) -> None:
    """The smallest number divided by -1 is a fault of x86, of which the process dies."""
    model_files.write_onnx(
        tmp_path / "m" / "model.onnx",
        [helper.make_node("Div", ["least", "x"], ["y"])],
        [model_files.value("x", TensorProto.INT64, ["rows", 1])],
        [model_files.value("y", TensorProto.INT64, ["rows", 1])],
        [("least", np.array([[-(2**63)]], dtype=np.int64))],
    )
    model_files.tensor_model(tmp_path / "m", runtime="onnxruntime")
    lines = ["-1" if at == 41 else str(2 ** (1 + at % 40)) for at in range(100)]
    job = lines_job(tmp_path, lines, content_type="text/csv", accept="text/csv")
    uri = (tmp_path / "parts").as_uri()

    def dies(at: int, **how: Any) -> tuple[int, ...]:
        """What was at work then."""
        with instance(tmp_path / f"i{at}", artifact={"isolation": False}) as running:
            client = running.client()
            assert client.load(1, tmp_path / "m", endpoint="transform-job/j")["ok"]
            client.begin_control(**job.call(1) | {"noted": True} | how)
            assert running.process.wait(30) == -signal.SIGFPE
        return take_at_work(uri, job.whole)

    suspects = dies(1)
    assert 41 in suspects
    assert set(suspects) <= set(range(100))
    assert dies(2, apart=[[one] for one in suspects]) == (41,)
    with instance(tmp_path / "i3", artifact={"isolation": False}) as running:
        client = running.client()
        client.load(1, tmp_path / "m", endpoint="transform-job/j")
        done = client.control(**job.call(1) | {"noted": True, "refused": [[41, "by signal 8"]]})
    assert (done["records"], done["refused"]) == (100, 1)
    assert len(job.outputs()) == 99
    assert [one["record"] for one in job.refused()] == [41]
