"""BYTES tensors are bytes, through models that pass them on; with an unmodified tritonclient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from tests.kit.model_files import tensor_model, value, write_onnx
from tests.kit.servers import Server
from tests.system.test_clients import client_python, tour

pytestmark = [pytest.mark.system, pytest.mark.integration]

CODE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", each)]) for each in arrays]
"""
CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


def triton_python(folder: Path) -> Path:
    (folder / "echo" / "1").mkdir(parents=True)
    (folder / "echo" / "1" / "model.py").write_text(CODE)
    (folder / "echo" / "config.pbtxt").write_text(CONFIG)
    return folder


def onnx_identity(folder: Path) -> Path:
    write_onnx(
        folder / "model.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        [value("x", TensorProto.STRING, ["n"])],
        [value("y", TensorProto.STRING, ["n"])],
    )
    return tensor_model(folder, runtime="onnxruntime")


@pytest.mark.parametrize("make", [triton_python, onnx_identity])
def test_bytes_come_back_as_they_went_and_only_text_models_ask_for_text(
    server: Server, query_intent: str, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    name = f"raw-{make.__name__.replace('_', '-')}"
    server.deploy(name, make(tmp_path / "model"))
    addresses = (f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}")
    python = client_python("tritonclient")
    seen = tour(python, "triton_bytes.py", *addresses, name, query_intent)
    text = "input 'text': element 1 is not UTF-8: byte 1 cannot be read, and this model reads text"
    (http_status, http_message), (grpc_status, grpc_message) = (
        seen[door].pop("text model") for door in ("http", "grpc")
    )
    assert (http_status, grpc_status) == ("400", "StatusCode.INVALID_ARGUMENT")
    assert text in http_message
    assert text in grpc_message
    status, words = seen.pop("as json")
    assert status == "406"
    assert words.startswith("output 'y': element 0 is not UTF-8 (byte 128)")
    assert seen == {
        "http": {"same": [True, True]},
        "grpc": {"same": [True, True]},
        "contents": True,
        "from json": ["68c3a9", ""],
    }
