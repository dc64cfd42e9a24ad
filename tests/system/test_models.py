"""Every layout becomes an endpoint that answers; every model that can't says which file and why."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.processes import runs
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

TENSORS = """
max_batch_size: 8
dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 100 }
instance_group [ { count: 2 kind: KIND_CPU } ]
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""

TRITON_CODE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        outputs = [pb_utils.Tensor("y", array[:, :3]) for array in inputs]
        return [pb_utils.InferenceResponse([each]) for each in outputs]
"""

FOREIGN = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

ROW = b"[[1.0, 0.0, 0.0, 2.0]]"
PREDICTED = {"predictions": [[9.0, 10.5, 12.0]]}


def bare_onnx(folder: Path) -> Path:
    model_files.affine(folder)
    (folder / "model.yaml").unlink()
    return folder


def openvino_ir(folder: Path) -> Path:
    import openvino

    made = bare_onnx(folder.with_name("onnx"))
    folder.mkdir()
    model = openvino.Core().read_model(made / "model.onnx")
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    return folder


def triton_onnx(folder: Path) -> Path:
    """Two versions; the higher one serves."""
    model = folder / "affine"
    made = bare_onnx(folder.with_name("onnx"))
    for version in ("1", "3"):
        (model / version).mkdir(parents=True)
        shutil.copy(made / "model.onnx", model / version)
    (model / "config.pbtxt").write_text('backend: "onnxruntime"\n' + TENSORS)
    return folder


def triton_openvino(folder: Path) -> Path:
    shutil.copytree(openvino_ir(folder.with_name("ir")), folder / "affine" / "1")
    (folder / "affine" / "config.pbtxt").write_text('backend: "openvino"\n' + TENSORS)
    return folder


def triton_python(folder: Path) -> Path:
    (folder / "first" / "1").mkdir(parents=True)
    (folder / "first" / "1" / "model.py").write_text(TRITON_CODE)
    (folder / "first" / "config.pbtxt").write_text('backend: "python"\n' + TENSORS)
    return folder


def foreign_program(folder: Path) -> Path:
    model_files.describe(
        folder, runtime="process", command=["python3", "{model_dir}/serve.py", "{port}"]
    )
    (folder / "serve.py").write_text(FOREIGN)
    return folder


def sagemaker_code(folder: Path) -> Path:
    return python_model(
        folder,
        """
        def model_fn(model_dir, context):
            return 10

        def predict_fn(data, model):
            return data * model
        """,
    )


@pytest.mark.parametrize(
    ("make", "body", "answer"),
    [
        (bare_onnx, ROW, PREDICTED),
        (openvino_ir, ROW, PREDICTED),
        (model_files.affine, ROW, PREDICTED),
        (model_files.strings, b'["one", "two"]', {"predictions": ["one", "two"]}),
        (triton_onnx, ROW, PREDICTED),
        (triton_openvino, ROW, PREDICTED),
        (triton_python, ROW, {"predictions": [[1.0, 0.0, 0.0]]}),
        (sagemaker_code, b"[1, 2]", [10, 20]),
        (foreign_program, b'{"as": "it is"}', {"as": "it is"}),
    ],
)
def test_each_layout_in_an_archive_becomes_an_endpoint_that_answers(
    server: Server, tmp_path: Path, make: Callable[[Path], Path], body: bytes, answer: object
) -> None:
    name = make.__name__.replace("_", "-")
    packed = tmp_path / "model.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(make(tmp_path / "model"), arcname=".")
    server.deploy(name, packed)
    status, got = server.post(f"/endpoints/{name}/invocations", body)
    assert (status, json.loads(got)) == (200, answer)
    server.client("sagemaker").delete_endpoint(EndpointName=name)


def cut_onnx(folder: Path) -> Path:
    path = bare_onnx(folder) / "model.onnx"
    path.write_bytes(path.read_bytes()[:-20])
    return folder


def ir_without_weights(folder: Path) -> Path:
    (openvino_ir(folder) / "model.bin").unlink()
    return folder


def broken_tokenizer(folder: Path) -> Path:
    (model_files.classifier(folder) / "tokenizer.json").write_text("{")
    return folder


def raising(folder: Path) -> Path:
    return python_model(
        folder,
        """
        def model_fn(model_dir):
            raise ValueError("the weights are sour")

        def predict_fn(data, model):
            return data
        """,
    )


def exiting(folder: Path) -> Path:
    return python_model(folder, "import os\nos._exit(3)\n")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (cut_onnx, ("model.onnx", "not a whole ONNX file", "Export the model again")),
        (ir_without_weights, ("model.bin", "not beside it", "Pack the .xml and the .bin")),
        (broken_tokenizer, ("tokenizer.json", "JSON file, whole")),
        (raising, ("code/inference.py", "ValueError: the weights are sour", "log")),
        (exiting, ("exited with status 3", "log")),
    ],
)
def test_a_model_that_cannot_load_fails_its_endpoint_with_file_cause_and_remedy(
    server: Server, tmp_path: Path, make: Callable[[Path], Path], words: tuple[str, ...]
) -> None:
    name = make.__name__.replace("_", "-")
    server.deploy(name, make(tmp_path / "model"), wait=False)
    client = server.client("sagemaker")
    described = wait_until(
        lambda: (
            (found := client.describe_endpoint(EndpointName=name))["EndpointStatus"] != "Creating"
            and found
        ),
        f"{name} Failed",
        60,
    )
    assert described["EndpointStatus"] == "Failed"
    for word in words:
        assert word in described["FailureReason"]
    client.delete_endpoint(EndpointName=name)


PARENT = """
import os
import subprocess

def model_fn(model_dir):
    return subprocess.Popen(["sleep", "600"]).pid

def predict_fn(data, model):
    return [os.getpid(), os.getppid(), model]
"""


def test_nothing_outlives_a_server_that_is_killed_not_even_what_a_model_started(
    fresh_server: Server, tmp_path: Path
) -> None:
    fresh_server.deploy("parent", python_model(tmp_path / "parent", PARENT))
    _, body = fresh_server.post("/endpoints/parent/invocations", b"[1]")
    worker, instance, program = json.loads(body)
    fresh_server.kill()
    wait_until(
        lambda: not any(runs(pid) for pid in (worker, instance, program)),
        "the end of all its processes",
        60,
    )
