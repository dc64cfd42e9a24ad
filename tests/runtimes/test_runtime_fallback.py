"""ONNX that one library does not take goes to another, and whoever asks is told why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files

from penstock.artifacts.description.description import ModelDescription
from penstock.artifacts.detection.detect import detect
from penstock.artifacts.files.onnx_header import class_labels, operators_of
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime, with_runtime

TREE = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_hitrates": [1.0, 1.0, 1.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [0, 0, 0],
    "class_treeids": [0] * 6, "class_nodeids": [1, 1, 1, 2, 2, 2],
    "class_ids": [0, 1, 2] * 2, "class_weights": [0.75, 0.25, 0.0, 0.125, 0.75, 0.125],
    "post_transform": "NONE",
}  # fmt: skip


def tree(folder: Path, labels: list[Any], *, zipped: bool = False) -> Path:
    """A tree on `x` [n, 1]: below 0.5 the first of three classes, else the second. `zipped`: the
    probabilities are maps."""
    folder.mkdir(parents=True, exist_ok=True)
    strings = isinstance(labels[0], str)
    key = "classlabels_strings" if strings else "classlabels_int64s"
    nodes = [
        helper.make_node(
            "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
            **TREE, **{key: labels},
        )
    ]  # fmt: skip
    outputs: list[Any] = [
        helper.make_tensor_value_info(
            "label", TensorProto.STRING if strings else TensorProto.INT64, [None]
        )
    ]
    if zipped:
        nodes.append(
            helper.make_node(
                "ZipMap", ["scores"], ["probability"], domain="ai.onnx.ml", **{key: labels}
            )
        )
        kind = TensorProto.STRING if strings else TensorProto.INT64
        row = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        outputs.append(helper.make_value_info("probability", helper.make_sequence_type_proto(row)))
    else:
        outputs.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3]))
    graph = helper.make_graph(
        nodes, "tree", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])], outputs
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), folder / "model.onnx")
    return folder


def context(folder: Path, cache: Path, **changes: Any) -> LoadContext:
    found = detect(folder)
    return LoadContext(
        model_dir=found.root, description=replace(found.description, **changes),
        endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0,
        cache_dir=cache, log=changes.pop("log", lambda line: None),
    )  # fmt: skip


def test_operators_of_another_domain_go_to_the_library_that_has_them(tmp_path: Path) -> None:
    lines: list[str] = []
    asked = context(tree(tmp_path / "m", [7, -9, 4]), tmp_path / "cache")
    assert (asked.description.runtime, asked.description.runtime_fallback) == (
        "openvino", "onnxruntime",
    )  # fmt: skip
    chosen = with_runtime(replace(asked, log=lines.append))
    reason = "openvino does not take model.onnx: it can't convert ai.onnx.ml.TreeEnsembleClassifier"
    assert chosen.description.runtime == "onnxruntime"
    assert chosen.description.runtime_reason == reason
    assert lines == [f"{reason}; it is served by onnxruntime"]
    runtime = load_tensor_runtime(chosen)
    answer = runtime.run(0, {"x": np.array([[0.0], [1.0]], np.float32)})
    assert answer["label"].tolist() == [7, -9]
    assert answer["scores"].tolist() == [[0.75, 0.25, 0.0], [0.125, 0.75, 0.125]]
    runtime.close()


def test_the_refusal_is_remembered_and_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = context(tree(tmp_path / "m", [7, -9, 4]), tmp_path / "cache")
    first = with_runtime(asked).description.runtime_reason
    monkeypatch.setattr("penstock.runtimes.probe.subprocess.run", None)  # no process is started
    assert with_runtime(asked).description.runtime_reason == first


def test_a_runtime_that_was_named_is_not_replaced(tmp_path: Path) -> None:
    folder = model_files.tensor_model(tree(tmp_path / "m", [7, -9, 4]), runtime="openvino")
    with pytest.raises(ModelError) as caught:
        load_tensor_runtime(context(folder, tmp_path / "cache"))
    assert caught.value.code == "operator-unsupported"
    assert "ai.onnx.ml.TreeEnsembleClassifier" in caught.value.message
    assert "onnxruntime" in caught.value.hint


def test_of_a_file_that_neither_takes_both_reasons_are_told(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Whirl", ["x"], ["y"], domain="com.example")],
        "unknown",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=9), tmp_path / "model.onnx")
    with pytest.raises(ModelError) as caught:
        with_runtime(context(tmp_path, tmp_path / "cache"))
    told = caught.value
    assert "openvino does not take model.onnx: it can't convert com.example.Whirl" in told.message
    assert "onnxruntime does not take it either" in told.message
    assert "damaged" not in f"{told.message} {told.hint}", "the file is whole"


@pytest.mark.parametrize("labels", [[7, -9, 4], ["cat", "dog", "cow"]])
def test_maps_are_a_tensor_whose_columns_have_names(tmp_path: Path, labels: list[Any]) -> None:
    folder = tree(tmp_path / "m", labels, zipped=True)
    assert class_labels(folder / "model.onnx", ["probability"]) == {"probability": tuple(labels)}
    runtime: Any = load_tensor_runtime(context(folder, tmp_path / "cache"))
    assert runtime.columns == {"probability": tuple(map(str, labels))}
    spec = runtime.outputs[1]
    assert (spec.name, spec.dtype, spec.shape) == ("probability", "FP32", (-1, 3))
    answer = runtime.run(0, {"x": np.array([[0.0], [1.0]], np.float32)})
    assert answer["probability"].tolist() == [[0.75, 0.25, 0.0], [0.125, 0.75, 0.125]]
    runtime.close()


def test_the_operators_of_a_file_are_read_without_its_library(tmp_path: Path) -> None:
    tree(tmp_path, [7, -9, 4], zipped=True)
    assert operators_of(tmp_path / "model.onnx") == (
        "ai.onnx.ml.TreeEnsembleClassifier", "ai.onnx.ml.ZipMap",
    )  # fmt: skip
    assert ModelDescription(runtime="openvino").runtime_reason == ""
