"""`response_cache { enable: true }`: what is answered from it, and what never is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import triton_files as files
from tests.kit.instances import FrameAnswer, instance
from tests.kit.model_files import weights
from triton_instance import TritonInstance, grpc_request

from penstock.wire import frames

#: Answers with the number of its runs, `x` and its request's parameters. A negative `x` fails.
COUNTER = """
class TritonPythonModel:
    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        self.runs += 1
        x = given(request, "x")
        if x.min() < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"run {self.runs}"))
        said = f"{self.runs} {x.reshape(-1).tolist()} {request.parameters()}"
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("said", np.array([[said]] * len(x), object))],
            parameters={"run": self.runs})
"""
ENABLED = "response_cache { enable: true }"
BYTES = 20_000


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonInstance]:
    folder = tmp_path_factory.mktemp("cached")
    with instance(folder, artifact={"response_cache_bytes": BYTES}) as running:
        yield TritonInstance(running.client())


def counter(folder: Path, more: str = ENABLED) -> Path:
    return files.python(
        folder, COUNTER, more=more,
        inputs=[("x", "FP32", [-1])], outputs=[("said", "STRING", [1])],
    )  # fmt: skip


def ask(served: TritonInstance, *rows: list[float], **more: Any) -> FrameAnswer:
    data = [one for row in rows for one in row]
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(rows), len(rows[0])], "data": data}
    body = json.dumps({"inputs": [tensor], **more}).encode()
    return served.client.invoke(served.copy, body, door="oip")


def run_of(answer: FrameAnswer) -> int:
    return int(answer.json["outputs"][0]["data"][0].split()[0])


def counts(served: TritonInstance) -> tuple[int, int]:
    status = served.client.control(op="status")
    [found] = [one["cache"] for one in status["copies"] if one["copy"] == served.copy]
    assert found["hit_s"] >= 0
    assert found["miss_s"] > 0
    return found["hits"], found["misses"]


def test_the_same_request_is_computed_once(cached: TritonInstance, tmp_path: Path) -> None:
    cached.load(counter(tmp_path / "m"))
    first, again = ask(cached, [1.0], id="a"), ask(cached, [1.0], id="b")
    assert (run_of(first), run_of(again)) == (1, 1)
    assert (first.json["id"], again.json["id"]) == ("a", "b")
    assert again.json["parameters"] == {"run": 1}
    assert frames.BATCH_REASONS[again.reply.reason] == "cache-hit"
    assert (again.reply.batch_rows, again.reply.run_us, again.reply.lane_us) == (0, 0, 0)
    assert counts(cached) == (1, 1)


def test_whatever_may_change_the_answer_makes_another_request(
    cached: TritonInstance, tmp_path: Path
) -> None:
    """The same bytes in another shape, too."""
    cached.load(counter(tmp_path / "m"))
    asked = [
        ask(cached, [1.0, 2.0]),
        ask(cached, [1.0], [2.0]),
        ask(cached, [1.0, 2.0], parameters={"a": "b"}),
        ask(cached, [1.0, 2.0], parameters={"a": 1}),
    ]
    assert [run_of(one) for one in asked] == [1, 2, 3, 4]
    assert run_of(ask(cached, [1.0, 2.0], parameters={"timeout": 9, "priority": 1})) == 1
    assert run_of(ask(cached, [1.0, 2.0], outputs=[{"name": "said"}])) == 1, "all that there are"
    assert counts(cached) == (2, 4)


def test_errors_are_not_kept(cached: TritonInstance, tmp_path: Path) -> None:
    cached.load(counter(tmp_path / "m"))
    errors = [ask(cached, [-1.0]).error["original_message"] for _ in range(2)]
    assert errors == ["run 1", "run 2"]


def test_a_request_that_was_cut_into_batches_is_one_answer(
    cached: TritonInstance, tmp_path: Path
) -> None:
    cached.load(files.affine(tmp_path / "m", rows_max=4))
    config = tmp_path / "m2" / "config.pbtxt"
    files.affine(tmp_path / "m2", rows_max=4)
    config.write_text(config.read_text() + "\n" + ENABLED)
    cached.load(tmp_path / "m2")
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    for _ in range(2):
        np.testing.assert_allclose(cached.ask(x=x)["y"], x @ weights(), rtol=1e-5)
    response = cached.ask_grpc(grpc_request(x=x))  # another form of the same request
    y = np.frombuffer(response.raw_output_contents[0], np.float32).reshape(10, 3)
    np.testing.assert_allclose(y, x @ weights(), rtol=1e-5)
    assert counts(cached) == (2, 1)


def test_the_cache_is_bounded_and_the_last_used_stay(
    cached: TritonInstance, tmp_path: Path
) -> None:
    cached.load(counter(tmp_path / "m"))
    for number in range(40):
        ask(cached, [float(number)])
    assert run_of(ask(cached, [39.0])) == 40
    assert run_of(ask(cached, [0.0])) == 41, "each takes at least a kilobyte of 20"


def test_it_is_off_unless_both_want_it(
    cached: TritonInstance, served: TritonInstance, tmp_path: Path
) -> None:
    cached.load(counter(tmp_path / "plain", more=""))
    assert [run_of(ask(cached, [1.0])) for _ in range(2)] == [1, 2]
    served.load(counter(tmp_path / "m"))
    assert [run_of(ask(served, [1.0])) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    "more",
    [
        "model_transaction_policy { decoupled: true }",
        'sequence_batching { control_input { name: "s" control { kind: CONTROL_SEQUENCE_START '
        "fp32_false_true: [0, 1] } } }",
    ],
)
def test_models_whose_answers_depend_on_more_have_none(
    cached: TritonInstance, tmp_path: Path, more: str
) -> None:
    error = cached.refusal(counter(tmp_path / "m", more=f"{more} {ENABLED}"))
    assert "response_cache" in error["message"]
    assert error["code"] == "triton-config-invalid"
