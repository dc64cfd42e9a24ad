"""An answer never depends on batch mates, order or padding: every runtime, through a real instance.

Each example sends requests in one write, so that they share batches, and compares every answer with
the one that the same request gets alone. The answers tell how large their batches were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from batch_mates import always
from hypothesis import strategies as st
from tests.kit import model_files
from tests.kit.instances import FrameClient, serving

AFFINE, SUMS, TEXTS, CODE, TRITON = 1, 2, 3, 4, 5

ADDER = """
def model_fn(model_dir): return None
def predict_fn(data, model): return {"sum": sum(data["values"]), "count": len(data["values"])}
"""

TRITON_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(r, "x").as_numpy() * 2)]
            )
            for r in requests
        ]
"""

TRITON_CONFIG = """
name: "doubles"
backend: "python"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 2 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 2 ] }]
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("mates")
    triton = folder / "triton" / "doubles"
    (triton / "1").mkdir(parents=True)
    (triton / "config.pbtxt").write_text(TRITON_CONFIG)
    (triton / "1" / "model.py").write_text(TRITON_MODEL)
    models = {
        AFFINE: model_files.affine(folder / "affine"),
        SUMS: model_files.row_sums(folder / "sums", runtime="onnxruntime"),
        TEXTS: model_files.classifier(folder / "texts"),
        CODE: model_files.code(folder / "code", ADDER),
        TRITON: folder / "triton",
    }
    with serving(folder, models) as made:
        yield made


def rows(width: int, count: int = 12) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(
        st.lists(st.integers(-99, 99), min_size=width, max_size=width), min_size=1, max_size=count
    )


def test_tensors_on_openvino(client: FrameClient) -> None:
    def holds(body: list[Any], together: Any, alone: Any) -> None:
        assert together == alone
        assert len(together["predictions"]) == len(body)

    always(client, AFFINE, st.lists(rows(4), min_size=1, max_size=6), holds)


def test_rows_of_different_widths_on_onnx_runtime(client: FrameClient) -> None:
    def holds(body: list[Any], together: Any, alone: Any) -> None:
        assert together == alone
        assert [each["sum"] for each in together["predictions"]] == [sum(row) for row in body]

    widths = st.integers(1, 4).flatmap(lambda width: rows(width, count=4))
    always(client, SUMS, st.lists(widths, min_size=1, max_size=6), holds)


def test_texts_of_different_lengths(client: FrameClient) -> None:
    def holds(body: Any, together: Any, alone: Any) -> None:
        for ours, theirs in zip(together, alone, strict=True):
            ours_by_label = {each["label"]: each["score"] for each in ours}
            theirs_by_label = {each["label"]: each["score"] for each in theirs}
            assert ours_by_label == pytest.approx(theirs_by_label, abs=1e-6)

    texts = st.lists(st.sampled_from(model_files.WORDS[1:]), min_size=0, max_size=20).map(" ".join)
    requests = st.lists(texts, min_size=1, max_size=4).map(
        lambda inputs: {"inputs": inputs, "parameters": {"top_k": None}}
    )
    always(client, TEXTS, st.lists(requests, min_size=1, max_size=6), holds)


def test_python_code(client: FrameClient) -> None:
    def holds(body: Any, together: Any, alone: Any) -> None:
        values = body["values"]
        assert together == alone == {"sum": sum(values), "count": len(values)}

    requests = st.lists(st.integers(-9, 9), max_size=5).map(lambda values: {"values": values})
    always(client, CODE, st.lists(requests, min_size=1, max_size=20), holds)


def test_triton_python_models(client: FrameClient) -> None:
    def holds(body: list[list[int]], together: Any, alone: Any) -> None:
        assert together == alone
        assert together["predictions"] == [[2 * value for value in row] for row in body]

    always(client, TRITON, st.lists(rows(2), min_size=1, max_size=6), holds)
