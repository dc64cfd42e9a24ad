"""Models whose config.pbtxt says little, nothing, or something else than the file does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from onnx import TensorProto, helper
from tests.kit import triton_files
from tests.kit.model_files import value, weights, write_onnx
from triton_instance import TritonInstance

X = np.array([[1.0, 0.0, 0.0, 2.0]], np.float32)


def affine(folder: Path, config: str | None, *, version: str = "1") -> Path:
    """`x` FP32 [n, 4] -> `y` FP32 [n, 3]. `config` None: there is no config.pbtxt."""
    triton_files.affine(folder)
    (folder / "config.pbtxt").unlink()
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    if version != "1":
        (folder / "1").rename(folder / version)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        'backend: ""  platform: "" default_model_filename: "" input [] output [] parameters []',
        'platform: "onnxruntime_onnx" version_policy { } instance_group [] batch_input []',
        'output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "" } ]',
    ],
)
def test_the_file_says_what_the_configuration_leaves_out(
    served: TritonInstance, tmp_path: Path, config: str | None
) -> None:
    described = served.load(affine(tmp_path / "affine", config))
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    assert (described["name"], described["rows_max"]) == ("e", 4)
    whole = described["config"]
    assert (whole["platform"], whole["backend"]) == ("onnxruntime_onnx", "onnxruntime")
    assert whole["default_model_filename"] == "model.onnx"
    assert whole["max_batch_size"] == 4
    assert whole["dynamic_batching"]["preferred_batch_size"] == []  # as Triton, where rows are many
    assert [(each["name"], each["dims"]) for each in whole["input"]] == [("x", [4])]
    np.testing.assert_allclose(served.ask(x=X)["y"], X @ weights())


def test_openvino_files_say_it_as_well(served: TritonInstance, tmp_path: Path) -> None:
    made = affine(tmp_path / "onnx", None)
    model = openvino.Core().read_model(made / "1" / "model.onnx")
    openvino.save_model(model, tmp_path / "ir" / "1" / "model.xml", compress_to_fp16=False)
    described = served.load(tmp_path / "ir")
    assert (described["runtime"], described["rows_max"]) == ("openvino", 4)
    assert described["config"]["backend"] == "openvino"
    np.testing.assert_allclose(served.ask(x=X)["y"], X @ weights())


def test_scalars_have_one_element_in_requests(served: TritonInstance, tmp_path: Path) -> None:
    """As in Triton, which has no tensor without dimensions."""
    write_onnx(
        tmp_path / "add" / "1" / "model.onnx",
        [helper.make_node("Add", ["a", "b"], ["c"])],
        [value("a", TensorProto.FLOAT, []), value("b", TensorProto.FLOAT, [])],
        [value("c", TensorProto.FLOAT, [])],
    )
    described = served.load(tmp_path / "add")
    assert described["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": [1]}
    one = np.array([1.5], np.float32)
    assert served.ask(a=one, b=one)["c"].tolist() == [3.0]


def test_rows_of_scalars_have_one_element_each(served: TritonInstance, tmp_path: Path) -> None:
    write_onnx(
        tmp_path / "double" / "1" / "model.onnx",
        [helper.make_node("Add", ["a", "a"], ["c"])],
        [value("a", TensorProto.FLOAT, ["n"])],
        [value("c", TensorProto.FLOAT, ["n"])],
    )
    described = served.load(tmp_path / "double")
    assert described["config"]["input"][0]["reshape"] == {"shape": []}
    assert described["inputs"][0]["shape"] == [-1, 1]
    given = np.array([[1.0], [2.0]], np.float32)
    assert served.ask(a=given)["c"].tolist() == [[2.0], [4.0]]


OUT = 'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }'


@pytest.mark.parametrize(
    ("config", "both"),
    [
        ('input { name: "x" data_type: TYPE_FP32 dims: [ 5 ] }', ("FP32 [-1, 5]", "FP32 [-1, 4]")),
        ('input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }', ("[-1, -1]", "FP32 [-1, 4]")),
        ('input { name: "x" data_type: TYPE_FP32 dims: [ 1, 4 ] }', ("[-1, 1, 4]", "[-1, 4]")),
        ('input { name: "x" data_type: TYPE_INT64 dims: [ 4 ] }', ("INT64", "FP32")),
        ('input { name: "z" data_type: TYPE_FP32 dims: [ 4 ] }', ("'z'", "has x")),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4, 1 ] } }',
            ("[-1, 4, 1] (from [-1, 2, 2])", "[-1, 4]"),
        ),
    ],
)
def test_a_configuration_that_contradicts_the_file_is_refused(
    served: TritonInstance, tmp_path: Path, config: str, both: tuple[str, str]
) -> None:
    said = f"max_batch_size: 8 {config} {OUT}"
    error = served.refusal(affine(tmp_path / "affine", said))
    assert error["code"] == "tensor-mismatch"
    assert "config.pbtxt" in error["message"]
    assert "1/model.onnx" in error["message"]
    for each in both:
        assert each in error["message"]


def test_every_input_of_the_file_is_in_the_configuration(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = tmp_path / "sum"
    write_onnx(
        folder / "1" / "model.onnx",
        [helper.make_node("Add", ["a", "b"], ["c"])],
        [value("a", TensorProto.FLOAT, [2]), value("b", TensorProto.FLOAT, [2])],
        [value("c", TensorProto.FLOAT, [2])],
    )
    tensors = [("a", "FP32", [2])], [("c", "FP32", [2])]
    triton_files.config(folder, inputs=tensors[0], outputs=tensors[1], rows_max=0)
    error = served.refusal(folder)
    assert "names the inputs a, and 1/model.onnx has also b" in error["message"]


def test_an_output_that_the_configuration_leaves_out_is_not_answered(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = tmp_path / "two"
    write_onnx(
        folder / "1" / "model.onnx",
        [helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Neg", ["a"], ["c"])],
        [value("a", TensorProto.FLOAT, ["n", 2])],
        [value("b", TensorProto.FLOAT, ["n", 2]), value("c", TensorProto.FLOAT, ["n", 2])],
    )
    triton_files.config(folder, inputs=[("a", "FP32", [2])], outputs=[("c", "FP32", [2])])
    served.load(folder)
    assert list(served.ask(a=np.ones((1, 2), np.float32))) == ["c"]


def test_a_batch_size_for_a_model_without_rows_is_refused(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = tmp_path / "add"
    write_onnx(
        folder / "1" / "model.onnx",
        [helper.make_node("Abs", ["a"], ["c"])],
        [value("a", TensorProto.FLOAT, [])],
        [value("c", TensorProto.FLOAT, [])],
    )
    (folder / "config.pbtxt").write_text("max_batch_size: 4")
    error = served.refusal(folder)
    assert "gives max_batch_size 4" in error["message"]
    assert "'a' of 1/model.onnx has no dimension" in error["message"]


# Python models complete their configuration themselves

DOUBLE = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        %s
        return auto_complete_model_config

    def initialize(self, args):
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        made = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            told = json.dumps(self.config["max_batch_size"])
            told = np.full((len(x), 1), told, dtype=np.object_)
            tensors = [pb_utils.Tensor("y", x * 2), pb_utils.Tensor("told", told)]
            made.append(pb_utils.InferenceResponse(tensors))
        return made
"""
ADDED = """
        config = auto_complete_model_config
        config.set_max_batch_size(6)
        config.set_dynamic_batching()
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "told", "data_type": "TYPE_STRING", "dims": [1]})
"""


def python_model(folder: Path, completes: str, config: str | None = None) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(DOUBLE % completes.strip())
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


@pytest.mark.parametrize("config", [None, "", 'backend: "python"', "max_batch_size: 2"])
def test_a_python_model_says_its_tensors_in_auto_complete_config(
    served: TritonInstance, tmp_path: Path, config: str | None
) -> None:
    described = served.load(python_model(tmp_path / "double", ADDED, config))
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert described["rows_max"] == 6
    assert "dynamic_batching" in described["config"]
    answered = served.ask(x=np.array([[1.0, 2.0]], np.float32))
    assert answered["y"].tolist() == [[2.0, 4.0]]
    assert answered["told"].tolist() == [["6"]], "initialize sees the completed configuration"


@pytest.mark.parametrize(
    ("completes", "config", "words"),
    [
        ("pass", None, "neither config.pbtxt nor auto_complete_config names an input"),
        ("pass", 'backend: "python"', "names an input"),
        (ADDED, "max_batch_size: 8", "max_batch_size 8"),
        (
            ADDED,
            'max_batch_size: 6 input { name: "x" data_type: TYPE_INT32 dims: [ 2 ] }',
            "expects data_type TYPE_INT32 for input 'x', model provides TYPE_FP32",
        ),
        ('auto_complete_model_config.add_input({"name": "x"})', None, "is missing 'data_type'"),
        ("raise ValueError('no idea')", None, "no idea"),
    ],
)
def test_a_python_model_that_contradicts_its_configuration_does_not_load(
    served: TritonInstance, tmp_path: Path, completes: str, config: str | None, words: str
) -> None:
    error = served.refusal(python_model(tmp_path / "double", completes, config))
    assert words in error["message"]


def test_a_group_on_gpus_is_refused_where_there_is_none(
    served: TritonInstance, tmp_path: Path
) -> None:
    error = served.refusal(affine(tmp_path / "affine", "instance_group { kind: KIND_GPU }"))
    assert error["code"] == "gpu-missing"
    assert "has kind KIND_GPU, and the instance has no GPU" in error["message"]
    described = served.load(affine(tmp_path / "cpu", "instance_group { count: 2 kind: KIND_CPU }"))
    assert described["lanes"] == 2
