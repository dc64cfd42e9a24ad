"""Triton's Python backend: what `TritonPythonModel` gets and what it may answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ModelError
from penstock.runtimes.python.batches import ERROR, PLAIN
from penstock.runtimes.python.triton_contract import TritonContract
from penstock.runtimes.python.triton_wire import unpack_answer
from penstock.runtimes.tensor_bytes import objects, pack

SOURCE = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(self.config, "y")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])
        self.factor = float(self.config["parameters"]["factor"]["string_value"])
        assert args["model_name"] == "m" and args["model_version"] == "2"

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if (x == 13).any():
                raise RuntimeError("unlucky")
            if (x == 14).any():
                error = pb_utils.TritonError("not fourteen", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            y = pb_utils.Tensor("y", (x * self.factor).astype(self.dtype))
            count = np.array([[len(requests)]] * len(x), dtype=np.int32)
            calls = pb_utils.Tensor("together", count)
            responses.append(pb_utils.InferenceResponse(output_tensors=[y, calls]))
        return responses[:-1] if (x == 15).any() else responses

    def finalize(self):
        self.factor = None
"""


ECHO = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            kinds = np.array([f"{x.dtype} {type(each).__name__}" for each in x.reshape(-1)])
            tensors = [pb_utils.Tensor("y", x), pb_utils.Tensor("kinds", kinds)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
"""


def test_bytes_are_bytes_in_the_model_and_behind_it(tmp_path: Path) -> None:
    """As in Triton, a BYTES tensor is an object array of `bytes`, whatever they are."""
    path = list(sys.path)
    (tmp_path / "model.py").write_text(ECHO)
    specs = [["x", "BYTES", [-1]]], [["y", "BYTES", [-1]], ["kinds", "BYTES", [-1]]]
    loaded = TritonContract(
        {"model_dir": str(tmp_path), "file": "model.py", "name": "m", "version": "1",
         "rows_max": 0, "inputs": specs[0], "outputs": specs[1], "parameters": {}}
    )  # fmt: skip
    given = [bytes(range(256)), b"", b"\0", b"\xff\0"]
    try:
        ((body, _, _, outcome),) = loaded.answer(
            [(b"", pack({"x": objects(given)}))], lambda at: None
        )
    finally:
        sys.path[:] = path
        for name in ("model", "triton_python_backend_utils"):
            sys.modules.pop(name, None)
    assert outcome == PLAIN
    answered = unpack_answer(body)
    assert answered["y"].tolist() == given
    assert answered["kinds"].tolist() == [b"object bytes"] * 4


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[TritonContract]:
    path = list(sys.path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_text(SOURCE)
    yield TritonContract(
        {
            "model_dir": str(tmp_path), "file": "1/model.py", "name": "m", "version": "2",
            "rows_max": 8, "inputs": [["x", "FP32", [-1, 2]]],
            "outputs": [["y", "FP64", [-1, 2]]], "parameters": {"factor": "3"},
        }
    )  # fmt: skip
    sys.path[:] = path
    for name in ("model", "triton_python_backend_utils"):
        sys.modules.pop(name, None)


def ask(loaded: TritonContract, *rows: list[float]) -> list[Any]:
    bodies = [pack({"x": np.array([row], dtype=np.float32)}) for row in rows]
    answers = loaded.answer([(b"", body) for body in bodies], lambda index: None)
    return [
        unpack_answer(body) if outcome == PLAIN else json.loads(body)
        for body, _, _, outcome in answers
    ]


def test_execute_gets_the_whole_batch(loaded: TritonContract) -> None:
    first, second = ask(loaded, [1, 2], [3, 4])
    assert first["y"].tolist() == [[3.0, 6.0]]
    assert first["y"].dtype == np.float64
    assert second["y"].tolist() == [[9.0, 12.0]]
    assert second["together"].tolist() == [[2]]


def test_a_raise_is_laid_at_the_request_that_causes_it(loaded: TritonContract) -> None:
    good, guilty, other = ask(loaded, [1, 2], [13, 0], [3, 4])
    assert good["together"].tolist() == [[1]]  # each ran alone
    assert other["y"].tolist() == [[9.0, 12.0]]
    assert guilty["message"] == "RuntimeError: unlucky"
    assert guilty["original_status"] == 500


def test_a_response_may_be_an_error(loaded: TritonContract) -> None:
    good, refused = ask(loaded, [1, 2], [14, 0])
    assert good["together"].tolist() == [[2]]
    assert (refused["message"], refused["original_status"]) == ("not fourteen", 400)


def test_too_few_responses_are_an_error_of_the_model(loaded: TritonContract) -> None:
    body = pack({"x": np.array([[15, 0]], dtype=np.float32)})
    ((error, _, _, outcome),) = loaded.answer([(b"", body)], lambda index: None)
    assert outcome == ERROR
    assert json.loads(error)["code"] == "wrong-answer-count"


def test_a_file_without_the_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1\n")
    with pytest.raises(ModelError, match="TritonPythonModel"):
        TritonContract({"model_dir": str(tmp_path), "file": "model.py"})
    sys.path.remove(str(tmp_path))
