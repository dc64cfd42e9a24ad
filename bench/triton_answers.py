"""The same small repositories of Triton's Python backend on NVIDIA's server and on ours: the same
requests, and whether status and answer are the same. `make bench NAME=triton_answers`.

NVIDIA's server is the one in nvidia-pytriton. Texts of errors are each server's own and are not
compared. Differences are printed one a line, with both answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.environments import make
from tools.free_port import free_port

from bench.processes import penstock_up, running, wait_answer
from bench.report import finish, versions_in

HEAD = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def given(request, name="x"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def answer(**tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in tensors.items()])

class TritonPythonModel:
"""
EACH = """
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
"""
FP32 = 'input { name: "x" data_type: TYPE_FP32 dims: [-1] } '
OUT = 'output { name: "y" data_type: TYPE_FP32 dims: [-1] } '
TEXT = 'output { name: "y" data_type: TYPE_STRING dims: [-1] } '
BATCHED = "max_batch_size: 4 "


class Case(NamedTuple):
    """One model, and requests to it: (path, body)."""

    name: str
    config: str
    code: str
    asks: Sequence[tuple[str, dict[str, Any]]]


def tensor(data: list[Any], shape: list[int], dtype: str = "FP32", name: str = "x") -> Any:
    return {"name": name, "datatype": dtype, "shape": shape, "data": data}


def infer(*inputs: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return "infer", {"inputs": list(inputs), **more}


ONE = tensor([1.0], [1, 1])


def seen(what: str) -> str:
    return EACH + f"        said = {what}\n        return answer(y=np.array([[said]], object))\n"


CASES = (
    Case("twice", BATCHED + FP32 + OUT, EACH + "        return answer(y=given(request) * 2)\n", (
        infer(ONE), infer(tensor([1.0, 2.0], [2, 1]), id="i7"), infer(tensor([], [0, 1])),
        infer(tensor([1.0] * 5, [5, 1])), infer(tensor([1], [1, 1], "INT32")), infer(),
        infer(tensor([1.0], [1, 1], name="z")), infer(ONE, outputs=[{"name": "y"}]),
        infer(ONE, outputs=[{"name": "z"}]), ("generate", {"x": [1.0, 2.0]}), ("generate", {}),
        ("generate_stream", {"x": 3.0, "id": "g"}),
    )),
    Case("parameters", BATCHED + FP32 + TEXT, seen("request.parameters()"), (
        infer(ONE), infer(ONE, parameters={"a": "b"}), infer(ONE, parameters={"n": 3}),
        infer(ONE, parameters={"f": 1.5}), infer(ONE, parameters={"t": True}),
        infer(ONE, parameters={"l": [1]}), infer(ONE, parameters={"o": {}}),
        infer(ONE, parameters={"z": None}), infer(ONE, parameters={"triton_x": 1}),
        infer(ONE, parameters={"priority": "high"}), infer(ONE, parameters={"timeout": 1.5}),
        infer(ONE, parameters={"sequence_start": 1}), infer(ONE, parameters={"sequence_id": 1.5}),
        infer(ONE, parameters={"binary_data_output": 1}),
    )),
    Case("identity", BATCHED + FP32 + TEXT, seen(
        "json.dumps([request.request_id(), request.correlation_id(), request.flags(), "
        "request.timeout(), sorted(request.requested_output_names())])"
    ), (
        infer(ONE), infer(ONE, id="abc"), infer(ONE, id=7),
        infer(ONE, parameters={"sequence_id": 9, "sequence_start": True}),
        infer(ONE, parameters={"sequence_id": "nine", "sequence_end": True}),
        infer(ONE, parameters={"timeout": 250}), infer(ONE, parameters={"timeout": -1}),
    )),
    Case("errors", BATCHED + FP32 + OUT, EACH + """
        code = int(given(request).reshape(-1)[0])
        codes = [pb_utils.TritonError.UNKNOWN, pb_utils.TritonError.INTERNAL,
                 pb_utils.TritonError.NOT_FOUND, pb_utils.TritonError.INVALID_ARG,
                 pb_utils.TritonError.UNAVAILABLE, pb_utils.TritonError.UNSUPPORTED,
                 pb_utils.TritonError.ALREADY_EXISTS, pb_utils.TritonError.CANCELLED]
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("no", codes[code]))
""", tuple(infer(tensor([float(code)], [1, 1])) for code in range(8))),
    Case("uncoded", BATCHED + FP32 + OUT, EACH
         + '        return pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))\n',
         (infer(ONE),)),
    Case("raises", BATCHED + FP32 + OUT, EACH + '        raise RuntimeError("spilled")\n',
         (infer(ONE),)),
    Case("model-exception", BATCHED + FP32 + OUT, EACH
         + '        raise pb_utils.TritonModelException("spilled")\n', (infer(ONE),)),
    Case("too-few", BATCHED + FP32 + OUT, "    def execute(self, requests):\n        return []\n",
         (infer(ONE),)),
    Case("nothing", BATCHED + FP32 + OUT,
         "    def execute(self, requests):\n        return [None for each in requests]\n",
         (infer(ONE),)),
    Case("fewer", BATCHED + FP32 + OUT
         + 'output { name: "z" data_type: TYPE_FP32 dims: [1] }',
         EACH + "        return answer(y=given(request))\n",
         (infer(ONE), infer(ONE, outputs=[{"name": "y"}]), infer(ONE, outputs=[{"name": "z"}]))),
    Case("more", BATCHED + FP32 + OUT,
         EACH + "        return answer(y=given(request), z=given(request))\n", (infer(ONE),)),
    Case("no-outputs", BATCHED + FP32 + OUT, EACH + "        return answer()\n", (infer(ONE),)),
    Case("other-type", BATCHED + FP32 + OUT,
         EACH + "        return answer(y=given(request).astype(np.int32))\n", (infer(ONE),)),
    Case("other-rows", BATCHED + FP32 + OUT,
         EACH + "        return answer(y=np.ones((3, 2), np.float32))\n", (infer(ONE),)),
    Case("scalar", 'input { name: "x" data_type: TYPE_FP32 dims: [1] } ' + OUT,
         EACH + "        return answer(y=given(request) + 1)\n",
         (infer(tensor([1.0], [1])), infer(ONE), ("generate", {"x": 4}))),
    Case("texts", BATCHED + 'input { name: "x" data_type: TYPE_STRING dims: [-1] } ' + TEXT,
         EACH + "        return answer(y=given(request))\n",
         (infer(tensor(["a", ""], [1, 2], "BYTES")), infer(tensor(["\u00e4"], [1, 1], "BYTES")),
          ("generate", {"x": "text"}), ("generate", {"x": ["a", "b"]}))),
    Case("integers", 'input { name: "x" data_type: TYPE_INT64 dims: [-1] } '
         'output { name: "y" data_type: TYPE_INT64 dims: [-1] }',
         EACH + "        return answer(y=given(request))\n",
         (infer(tensor([2**62 + 1, -(2**63)], [2], "INT64")), infer(tensor([1.5], [1], "INT64")))),
    Case("flags", 'input { name: "x" data_type: TYPE_BOOL dims: [-1] } '
         'output { name: "y" data_type: TYPE_BOOL dims: [-1] }',
         EACH + "        return answer(y=~given(request))\n",
         (infer(tensor([True, False], [2], "BOOL")), infer(tensor([1, 0], [2], "BOOL")))),
    Case("helpers", FP32 + TEXT, EACH + """
        told = [
            str(pb_utils.triton_string_to_numpy("TYPE_INT8")), FINAL,
            pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
            str(pb_utils.triton_to_numpy_type(11)),
            pb_utils.numpy_to_triton_type(np.float32), pb_utils.numpy_to_triton_type(np.object_),
            pb_utils.serialize_byte_tensor(np.array([b"ab", "c"], object)).hex(),
            [each.decode() for each in pb_utils.deserialize_bytes_tensor(b"\\2\\0\\0\\0ab")],
            sorted(type(each).__name__ for each in request.inputs()), request.inputs()[0].shape(),
            request.inputs()[0].is_cpu(), request.is_cancelled()]
        return answer(y=np.array([json.dumps(told)], object))
""", (infer(tensor([1.0], [1])),)),
    Case("sender", BATCHED + FP32 + OUT, """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(answer(y=given(request)), flags=FINAL)
""", (infer(ONE), ("generate_stream", {"x": 1.0}))),
    Case("decoupled", FP32 + OUT + "model_transaction_policy { decoupled: true }", """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(given(request).reshape(-1)[0])):
                sender.send(answer(y=np.array([number], np.float32)))
            sender.send(flags=FINAL)
""", (
        infer(tensor([1.0], [1])), ("generate", {"x": 1.0}), ("generate_stream", {"x": 0.0}),
        ("generate_stream", {"x": 1.0}), ("generate_stream", {"x": 5.0, "id": "s"}),
    )),
    Case("decoupled-error", FP32 + OUT + "model_transaction_policy { decoupled: true }", """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            error = pb_utils.TritonError("no", pb_utils.TritonError.NOT_FOUND)
            sender.send(pb_utils.InferenceResponse(error=error),
                        flags=FINAL)
""", (("generate_stream", {"x": 1.0}),)),
)  # fmt: skip


def write(root: Path) -> None:
    for case in CASES:
        folder = root / case.name / case.name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(f'backend: "python" {case.config}')
        (folder / "1" / "model.py").write_text(HEAD + case.code)


def ask(base: str, case: Case, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """(status, the answer); of an error only that it is one."""
    request = urllib.request.Request(
        f"{base}/v2/models/{case.name}/{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, _plain(answer.read().decode())
    except TimeoutError:  # NVIDIA's server waits for ever for a response that never comes
        return 0, "no answer"
    except urllib.error.HTTPError as error:
        return error.code, "an error"


def _plain(text: str) -> Any:
    if text.startswith("data:"):
        return [json.loads(each[5:]) for each in text.split("\n\n") if each]
    return json.loads(text) if text else ""


@contextlib.contextmanager
def nvidia(root: Path, folder: Path) -> Iterator[str]:
    python = make("pytriton")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    server = packages / "pytriton" / "tritonserver"
    backends = folder / "backends"
    shutil.copytree(server / "backends", backends)
    version = packages.parent.name.removeprefix("python")
    shutil.copytree(
        server / "python_backend_stubs" / version, backends / "python", dirs_exist_ok=True
    )
    port = free_port()
    argv = [
        str(server / "bin" / "tritonserver"), f"--backend-directory={backends}",
        "--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false",
        "--allow-metrics=false", "--exit-on-error=false",
        *(f"--model-repository={root / case.name}" for case in CASES),
    ]  # fmt: skip
    environment = {
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PATH": f"{python.parent}:{os.environ['PATH']}",  # by which the stub finds its packages
    }
    with running(argv, env=environment):
        base = f"http://127.0.0.1:{port}"
        wait_answer(f"{base}/v2/repository/index", b"{}", timeout_s=120.0)
        yield base


def _ours(base: str, root: Path, case: Case) -> list[tuple[int, Any]]:
    """The answers of an endpoint that lives as long as that takes: each has its own memory."""
    command = [sys.executable, "-m", "penstock"]
    folder = str(root / case.name)
    for words in (["deploy", case.name, folder], ["delete", case.name, "--yes"]):
        subprocess.run([*command, *words, "--url", base], check=True, capture_output=True)
        if words[0] == "deploy":
            answers = [ask(base, case, *each) for each in case.asks]
    return answers


def main(arguments: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "repositories")
        write(root)
        with nvidia(root, Path(scratch)) as base:
            theirs = [ask(base, case, *each) for case in CASES for each in case.asks]
        with penstock_up() as base:
            ours = [each for case in CASES for each in _ours(base, root, case)]
    asked = [(case.name, *each) for case in CASES for each in case.asks]
    differ = 0
    for (name, path, body), their, our in zip(asked, theirs, ours, strict=True):
        if their != our:
            differ += 1
            print(f"{name} {path} {json.dumps(body)}\n  NVIDIA {their}\n  ours   {our}")
    finish(
        "triton_answers",
        {"models": len(CASES), "requests": len(asked), "different": differ},
        versions=versions_in("pytriton", "nvidia-pytriton", "numpy"),
    )
