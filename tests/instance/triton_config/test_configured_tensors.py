"""reshape, optional inputs and label files of config.pbtxt, on real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import triton_files
from tests.kit.model_files import value, weights, write_onnx
from triton_instance import TritonInstance, grpc_request


def config(folder: Path, text: str) -> Path:
    (folder / "config.pbtxt").write_text(text)
    return folder


def affine(folder: Path, text: str) -> Path:
    return config(triton_files.affine(folder), text)


def test_requests_have_the_dims_and_the_model_has_the_reshape(
    served: TritonInstance, tmp_path: Path
) -> None:
    described = served.load(
        affine(
            tmp_path / "affine",
            """max_batch_size: 8
            input { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }
            output { name: "y" data_type: TYPE_FP32 dims: [ 1, 3, 1 ] reshape { shape: [ 3 ] } }""",
        )
    )
    assert described["inputs"][0]["shape"] == [-1, 2, 2]
    assert described["outputs"][0]["shape"] == [-1, 1, 3, 1]
    assert described["config"]["input"][0]["reshape"] == {"shape": [4]}
    given = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    expected = given.reshape(2, 4) @ weights()
    np.testing.assert_allclose(served.ask(x=given)["y"], expected.reshape(2, 1, 3, 1))
    assert served.error(x=given.reshape(2, 4))["original_status"] == 400


@pytest.mark.parametrize("rows_max", [0, 4])
def test_a_reshape_to_no_shape_makes_a_scalar(
    served: TritonInstance, tmp_path: Path, rows_max: int
) -> None:
    rows = ["n"] if rows_max else []
    write_onnx(
        tmp_path / "double" / "1" / "model.onnx",
        [helper.make_node("Add", ["a", "a"], ["c"])],
        [value("a", TensorProto.FLOAT, rows)],
        [value("c", TensorProto.FLOAT, rows)],
    )
    tensor = "data_type: TYPE_FP32 dims: 1 reshape { shape: [ ] }"
    text = f'max_batch_size: {rows_max} input {{ name: "a" {tensor} }}'
    served.load(config(tmp_path / "double", text + f'output {{ name: "c" {tensor} }}'))
    given = np.array([[2.0], [3.0]], np.float32) if rows_max else np.array([2.0], np.float32)
    assert served.ask(a=given)["c"].tolist() == (given * 2).tolist()


def test_free_sizes_keep_their_place_in_a_reshape(served: TritonInstance, tmp_path: Path) -> None:
    write_onnx(
        tmp_path / "abs" / "1" / "model.onnx",
        [helper.make_node("Abs", ["a"], ["c"])],
        [value("a", TensorProto.FLOAT, ["n", 8, "m", 1, "k"])],
        [value("c", TensorProto.FLOAT, ["n", 8, "m", 1, "k"])],
    )
    tensor = "data_type: TYPE_FP32 dims: [ 2, 4, -1, -1 ] reshape { shape: [ 8, -1, 1, -1 ] }"
    text = f'max_batch_size: 4 input {{ name: "a" {tensor} }} output {{ name: "c" {tensor} }}'
    served.load(config(tmp_path / "abs", text))
    given = -np.arange(48, dtype=np.float32).reshape(1, 2, 4, 2, 3)
    assert served.ask(a=given)["c"].tolist() == np.abs(given).tolist()


SHAPES = """
class TritonPythonModel:
    def execute(self, requests):
        made = []
        for request in requests:
            x, extra = (pb_utils.get_input_tensor_by_name(request, n) for n in ("x", "extra"))
            told = f"{list(x.as_numpy().shape)} {extra is None or extra.as_numpy().tolist()}"
            rows = len(x.as_numpy())
            made.append(answer(y=x.as_numpy(), told=np.full((rows, 1), told, np.object_)))
        return made
"""


def test_a_python_model_sees_the_reshaped_tensor_and_may_miss_an_optional_one(
    served: TritonInstance, tmp_path: Path
) -> None:
    folder = triton_files.python(tmp_path / "shapes", SHAPES, inputs=[], outputs=[])
    served.load(
        config(
            folder,
            """backend: "python" max_batch_size: 4
            input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
            input { name: "extra" data_type: TYPE_INT64 dims: [ 2 ] optional: true }
            output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
            output { name: "told" data_type: TYPE_STRING dims: [ 1 ] }""",
        )
    )
    x = np.array([[1.0], [2.0]], np.float32)
    made = served.ask(x=x)
    assert made["y"].tolist() == [[1.0], [2.0]]
    assert made["told"].tolist() == [["[2] True"]] * 2
    made = served.ask(x=x, extra=np.array([[1, 2], [3, 4]], np.int64))
    assert made["told"].tolist() == [["[2] [[1, 2], [3, 4]]"]] * 2
    assert "input 'x' is missing" in served.error(extra=np.array([[1, 2]], np.int64))["message"]
    assert "'z' is not one of" in served.error(x=x, z=x)["message"]


LABELED = """max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "animals.txt" }
"""


def test_classes_have_the_names_of_the_label_file(served: TritonInstance, tmp_path: Path) -> None:
    """A class whose line is empty, or that has no line, has no name."""
    folder = affine(tmp_path / "affine", LABELED)
    (folder / "animals.txt").write_text("cat\n\ndog\n")
    served.load(folder)
    x = np.array([[1.0, 0.0, 0.0, 0.0]], np.float32)
    wanted = {"name": "y", "parameters": {"classification": 2}}
    assert served.ask([wanted], x=x)["y"].tolist() == [["1.000000:2:dog", "0.500000:1"]]
    asked = grpc_request(x=x)
    asked.outputs.add(name="y").parameters["classification"].int64_param = 1
    answer = served.ask_grpc(asked)
    assert answer.outputs[0].datatype == "BYTES"
    assert answer.raw_output_contents[0][4:] == b"1.000000:2:dog"


def test_each_output_has_labels_of_its_own(served: TritonInstance, tmp_path: Path) -> None:
    write_onnx(
        tmp_path / "two" / "1" / "model.onnx",
        [helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Neg", ["a"], ["c"])],
        [value("a", TensorProto.FLOAT, ["n", 2])],
        [value("b", TensorProto.FLOAT, ["n", 2]), value("c", TensorProto.FLOAT, ["n", 2])],
    )
    folder = config(
        tmp_path / "two",
        """max_batch_size: 8
        input { name: "a" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "b" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "b.txt" }
        output { name: "c" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "c.txt" }""",
    )
    (folder / "b.txt").write_text("near\nfar")
    (folder / "c.txt").write_text("left\nright")
    served.load(folder)
    wanted = [{"name": name, "parameters": {"classification": 1}} for name in ("b", "c")]
    made = served.ask(wanted, a=np.array([[1.0, 2.0]], np.float32))
    assert made["b"].tolist() == [["2.000000:1:far"]]
    assert made["c"].tolist() == [["-1.000000:0:left"]]


@pytest.mark.parametrize(
    "reshape", ["shape: [ 3 ]", "shape: [ 4, 0 ]", "shape: [ -1 ]", "shape: [ ]", "sizes: [ 4 ]"]
)
def test_a_reshape_to_another_number_of_elements_is_refused(
    served: TritonInstance, tmp_path: Path, reshape: str
) -> None:
    tensor = f'name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape {{ {reshape} }}'
    error = served.refusal(affine(tmp_path / "affine", f"max_batch_size: 8 input {{ {tensor} }}"))
    assert error["code"] == "triton-config-invalid"
    assert "reshape" in error["message"]
