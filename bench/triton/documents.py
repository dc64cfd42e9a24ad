"""Cases of ONNX models. NVIDIA's server of nvidia-pytriton has no backend for them, so what it
answers elsewhere stands beside each ask, with the page that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
from onnx import TensorProto, helper

from bench.triton.cases import BATCHED, ONE, Ask, Case, http, tensor, tensors

PAGES = "https://github.com/triton-inference-server/server/blob/main/docs"
REPOSITORY = f"{PAGES}/user_guide/model_repository.md"
CONFIGURATION = f"{PAGES}/user_guide/model_configuration.md"
PROTOCOL = f"{PAGES}/protocol"


def doubles(*, rows: bool = True, dims: int = 1) -> bytes:
    """`y` = `x` + `x`, in FP32."""
    shape: list[Any] = (["n"] if rows else []) + [None] * dims
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubles",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def says(ask: Ask, code: Any, answer: Any, page: str) -> Ask:
    return replace(ask, documented=([code, answer], page))


def doubled(name: str, page: str, data: list[float] | None = None) -> Ask:
    data = data or [1.0]
    made = tensor([2 * each for each in data], [1, len(data)], name="y")
    answered = {"model_name": name, "model_version": "1", "outputs": [made]}
    body = {"inputs": [tensor(data, [1, len(data)])]}
    return says(http("doubled", "infer", body), 200, answered, page)


def onnx_case(name: str, config: str | None, *asks: Ask, file: str = "1/model.onnx",
              model: bytes | None = None) -> Case:  # fmt: skip
    return Case(name, config, None, asks, {file: model or doubles()}, backend="onnxruntime",
                documented="onnx")  # fmt: skip


DEFAULT_ROWS = f"{CONFIGURATION}#default-max-batch-size-and-dynamic-batcher"
RESHAPED = "".join(
    f'{side} {{ name: "{name}" data_type: TYPE_FP32 dims: [1] reshape {{ shape: [] }} }} '
    for side, name in (("input", "x"), ("output", "y"))
)
LABELS = "max_batch_size: 4 " + tensors(dims="3").replace(
    'name: "y"', 'name: "y" label_filename: "labels.txt"'
)
CHOSEN = {
    "inputs": [tensor([0.5, 1.5, 1.0], [1, 3])],
    "outputs": [{"name": "y", "parameters": {"classification": 2}}],
}

DOCUMENTED = (
    onnx_case("onnx", BATCHED, doubled("onnx", f"{REPOSITORY}#onnx-models")),
    onnx_case(
        "onnx-completed",
        None,
        doubled("onnx-completed", f"{CONFIGURATION}#auto-generated-model-configuration"),
        says(http("rows and batcher", "config", view="batching"), 200,
             {"max_batch_size": 4, "dynamic_batching": {}}, DEFAULT_ROWS),
    ),
    onnx_case("onnx-named", BATCHED + 'default_model_filename: "other.onnx"',
              doubled("onnx-named", f"{REPOSITORY}#onnx-models"), file="1/other.onnx"),
    onnx_case("onnx-folder", BATCHED, doubled("onnx-folder", f"{REPOSITORY}#onnx-models"),
              file="1/model.onnx/model.onnx"),
    onnx_case("onnx-reshaped", "max_batch_size: 4 " + RESHAPED,
              doubled("onnx-reshaped", f"{CONFIGURATION}#reshape"), model=doubles(dims=0)),
    replace(
        onnx_case("onnx-labels", LABELS, says(
            http("the two best", "infer", CHOSEN), 200,
            {"model_name": "onnx-labels", "model_version": "1", "outputs": [
                tensor(["3.000000:1:dog", "2.000000:2:fish"], [1, 2], "BYTES", "y")]},
            f"{PROTOCOL}/extension_classification.md#httprest")),
        files={"1/model.onnx": doubles(), "labels.txt": "cat\ndog\nfish\n"},
    ),
    onnx_case(
        "onnx-refused", BATCHED,
        says(http("an unknown output", "infer", {"inputs": [ONE], "outputs": [{"name": "z"}]}),
             400, "an error", f"{PROTOCOL}/README.md"),
    ),
)  # fmt: skip
