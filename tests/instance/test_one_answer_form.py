"""One model file answers in one form, however it was deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.detection.detect import detect
from penstock.instance.codecs.base import CodecModel
from penstock.instance.codecs.select import decode_tensors
from penstock.instance.loading.start import start
from penstock.runtimes.base import LaneListener, LoadContext
from penstock.wire.frames import RequestMeta


def two_outputs(folder: Path) -> None:
    """`x` [any, 2] -> `sum` [any], `twice` [any, 2]; no name says that `any` is a batch."""
    model_files.write_onnx(
        folder,
        [helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=0),
         helper.make_node("Add", ["x", "x"], ["twice"])],
        [model_files.value("x", TensorProto.FLOAT, ["any", 2])],
        [model_files.value("sum", TensorProto.FLOAT, ["any"]),
         model_files.value("twice", TensorProto.FLOAT, ["any", 2])],
        [("axes", np.array([1], dtype=np.int64))],
    )  # fmt: skip


def bare(folder: Path) -> None:
    two_outputs(folder / "model.onnx")


def described(folder: Path) -> None:
    two_outputs(folder / "model.onnx")
    model_files.describe(folder, runtime="onnxruntime", file="model.onnx")


def without_batches(folder: Path) -> None:
    two_outputs(folder / "model.onnx")
    model_files.describe(folder, runtime="openvino", file="model.onnx", batching={"rows_max": 0})


def triton(folder: Path, rows: int = 8) -> None:
    two_outputs(folder / "m" / "1" / "model.onnx")
    lead = "" if rows else "-1, "
    one = "-1" if not rows else "1"
    (folder / "m" / "config.pbtxt").write_text(
        f'backend: "onnxruntime"\nmax_batch_size: {rows}\n'
        f'input [{{name: "x" data_type: TYPE_FP32 dims: [{lead}2]}}]\n'
        f'output [{{name: "sum" data_type: TYPE_FP32 dims: [{one}]}},'
        f'{{name: "twice" data_type: TYPE_FP32 dims: [{lead}2]}}]\n'
    )


def triton_without_batches(folder: Path) -> None:
    triton(folder, rows=0)


@pytest.mark.parametrize(
    "deployed", [bare, described, without_batches, triton, triton_without_batches]
)
async def test_a_file_answers_alike_however_it_was_deployed(deployed: Any, tmp_path: Path) -> None:
    deployed(tmp_path / "a")
    found = detect(tmp_path / "a")
    context = LoadContext(
        model_dir=found.root, description=found.description, endpoint_name="e",
        variant_name="v", cores=1.0, memory_bytes_max=0, cache_dir=tmp_path / "cache",
    )  # fmt: skip
    nobody: LaneListener = None  # type: ignore[assignment]
    loaded = await start(context, nobody)
    engine: Any = loaded.rows.engine  # type: ignore[union-attr]
    try:
        answers = []
        for kind in ("application/json", "application/jsonlines", "text/csv"):
            body = b"1,2\n3,4\n" if kind == "text/csv" else b"[[1, 2], [3, 4]]"
            body = b"[1, 2]\n[3, 4]\n" if kind == "application/jsonlines" else body
            asked = decode_tensors(engine.model, RequestMeta(content_type=kind), body)
            answers.append(json.loads(asked.encode(loaded.runtime.run(0, asked.tensors))[0]))
    finally:
        await loaded.close()
    rows = [{"sum": 3.0, "twice": [2.0, 4.0]}, {"sum": 7.0, "twice": [6.0, 8.0]}]
    assert answers == [{"predictions": rows}] * 3


def model(*outputs: tuple[int, ...], taken: tuple[int, ...] = (-1, 2), **more: Any) -> CodecModel:
    return CodecModel(
        name="m", version="1", batched=False,
        inputs=(TensorSpec(name="x", dtype="FP32", shape=taken),),
        outputs=tuple(
            TensorSpec(name="ab"[at], dtype="FP32", shape=shape) for at, shape in enumerate(outputs)
        ),
        **more,
    )  # fmt: skip


def written(asked: CodecModel, **arrays: list[Any]) -> Any:
    decoded = decode_tensors(asked, RequestMeta(), b"[[1, 2], [3, 4]]")
    body, _ = decoded.encode({name: np.array(value) for name, value in arrays.items()})
    return json.loads(body)["predictions"]


def test_an_answer_without_rows_is_an_object_of_whole_tensors() -> None:
    whole = {"a": [1, 2, 3], "b": [[4]]}
    assert written(model((3,), (1, 1)), **whole) == whole, "no output has the request's rows"
    assert written(model((-1,), (-1, 1)), **whole) == whole, "they have different rows"


def test_a_dimension_that_a_converter_declares_as_one_may_be_that_of_rows() -> None:
    """LightGBM's writes the label's so, and answers one for each row."""
    rows = [{"a": 1, "b": [0.5]}, {"a": 2, "b": [1.5]}]
    assert written(model((1,), (-1, 1)), a=[1, 2], b=[[0.5], [1.5]]) == rows


def test_values_with_names_are_objects() -> None:
    named = model((-1, 2), columns={"a": ("cat", "dog")})
    rows = [{"cat": 0.25, "dog": 0.75}, {"cat": 1.0, "dog": 0.0}]
    assert written(named, a=[[0.25, 0.75], [1.0, 0.0]]) == rows
