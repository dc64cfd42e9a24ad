"""A request's tensors are gone with its answer: no cycle of references keeps them for the collector
of cycles, which comes rarely."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files, python_models
from tests.kit import triton_files as files
from tests.kit.instances import instance

from penstock.runtimes.workers.memory import own_bytes
from penstock.wire import frames
from penstock.wire.oip_messages import ModelInferRequest

MIB = 1 << 20
FLOATS = MIB // 4
WARM, CALLS = 30, 120  #: each sends a MiB and gets one
KEPT_MAX = 50 * MIB  #: of what they sent and got, 240 MiB

TRITON_ECHO = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(y=given(request, "x")) for request in requests]
"""
TRITON_CALLER = """
class TritonPythonModel:
    def execute(self, requests):
        got = [call("tensors", ["y"], x=given(request, "x")).exec() for request in requests]
        return [answer(y=each.output_tensors()[0].as_numpy()) for each in got]
"""
TRITON_CALLER_OF_STREAMS = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        parts = call("tensors", ["y"], x=given(request, "x")).exec(decoupled=True)
        whole = [part.output_tensors()[0].as_numpy() for part in parts if part.output_tensors()]
        return answer(y=whole[0])
"""
TRITON_DECOUPLED = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(answer(y=given(request, "x")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
WIDE = [("x", "FP32", [-1])], [("y", "FP32", [-1])]


def triton_python(folder: Path) -> Path:
    inputs, outputs = WIDE
    return files.python(folder / "tensors", TRITON_ECHO, inputs=inputs, outputs=outputs)


def triton_chain(folder: Path) -> Path:
    inputs, outputs = WIDE
    files.python(folder / "tensors", TRITON_ECHO, inputs=inputs, outputs=outputs)
    files.ensemble(
        folder / "chain",
        ("tensors", {"x": "X"}, {"y": "Y"}),
        inputs=[("X", "FP32", [-1])],
        outputs=[("Y", "FP32", [-1])],
    )
    return folder


def triton_caller(folder: Path) -> Path:
    inputs, outputs = WIDE
    files.python(folder / "tensors", TRITON_ECHO, inputs=inputs, outputs=outputs)
    files.python(folder / "caller", TRITON_CALLER, inputs=inputs, outputs=outputs)
    return folder


def triton_caller_of_streams(folder: Path) -> Path:
    inputs, outputs = WIDE
    more = "model_transaction_policy { decoupled: true }"
    files.python(folder / "tensors", TRITON_DECOUPLED, inputs=inputs, outputs=outputs, more=more)
    files.python(folder / "caller", TRITON_CALLER_OF_STREAMS, inputs=inputs, outputs=outputs)
    return folder


PIPELINE = """
schema: 1
steps:
  - name: echo
    python: {function: echo}
    inputs: {text: $request.text}
    emit: [{kind: text, data: {text: $piece}}]
"""
PIPELINE_CODE = """
def echo(text):
    return text
"""


def pipeline(folder: Path) -> Path:
    return python_models.pipeline(folder, PIPELINE, PIPELINE_CODE)


SERVER = """
import http.server, sys

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self): self.whole(b"")
    def do_POST(self): self.whole(self.rfile.read(int(self.headers["Content-Length"])))
    def whole(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


def program(folder: Path) -> Path:
    folder.mkdir()
    (folder / "serve.py").write_text(SERVER)
    command = [sys.executable, "serve.py", "{port}"]
    return model_files.describe(folder, runtime="process", command=command)


def negation(runtime: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        model_files.write_onnx(
            folder / "model.onnx",
            [helper.make_node("Neg", ["x"], ["y"])],
            [model_files.value("x", TensorProto.FLOAT, ["n", "m"])],
            [model_files.value("y", TensorProto.FLOAT, ["n", "m"])],
        )
        return model_files.tensor_model(folder, runtime=runtime)

    return write


def sagemaker_python(folder: Path) -> Path:
    return python_models.python_model(folder, python_models.ECHO)


def tensors(name: str) -> bytes:
    message = ModelInferRequest(model_name="m")
    message.inputs.add(name=name, datatype="FP32", shape=[1, FLOATS])
    message.raw_input_contents.append(np.ones(FLOATS, np.float32).tobytes())
    return bytes(message.SerializeToString())


OIP, BYTES, JSON = "application/x-oip-grpc", "application/octet-stream", "application/json"
TEXT = json.dumps({"text": "x" * MIB}).encode()
#: How the model is written, the name of that which is asked among several, and what it is sent
KINDS = {
    "triton-python": (triton_python, "", OIP, tensors("x")),
    "triton-ensemble": (triton_chain, "chain", OIP, tensors("X")),
    "triton-nested": (triton_caller, "caller", OIP, tensors("x")),
    "triton-nested-stream": (triton_caller_of_streams, "caller", OIP, tensors("x")),
    "openvino": (negation("openvino"), "", OIP, tensors("x")),
    "onnxruntime": (negation("onnxruntime"), "", OIP, tensors("x")),
    "sagemaker-python": (sagemaker_python, "", BYTES, bytes(MIB)),
    "program": (program, "", BYTES, bytes(MIB)),
    "pipeline": (pipeline, "", JSON, TEXT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_requests_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    write, model, content_type, body = KINDS[kind]
    folder = write(tmp_path / "model")
    environment = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": model} if model else {}
    with instance(tmp_path / "instance") as running:
        client = running.client()
        client.serve(1, folder, source={"uri": f"file://{folder}", "environment": environment})
        before = 0
        for call in range(WARM + CALLS):
            if call == WARM:
                before = own_bytes(running.process.pid)
            answer = client.invoke(1, body, content_type=content_type)
            assert answer.kind == frames.REPLY, answer.error
            client.answers.clear()
        assert own_bytes(running.process.pid) - before < KEPT_MAX
        client.close()
