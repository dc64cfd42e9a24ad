"""What every runtime promises the instance, asked of the real ones and of their fakes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import model_files
from tests.kit.fake_runtimes import FakePayloadRuntime, FakeTensorRuntime

from penstock.artifacts.detection.detect import detect
from penstock.core.deployment.slot_retries import is_permanent
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext, Payload, PayloadReply, Returned
from penstock.runtimes.loader import load_payload_runtime, load_tensor_runtime
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.frames import RequestMeta, encode_request_meta


def context(folder: Path, **more: Any) -> LoadContext:
    detected = detect(folder)
    fields: dict[str, Any] = {
        "model_dir": detected.root,
        "description": detected.description,
        "endpoint_name": "e",
        "variant_name": "v",
        "cores": 1.0,
        "memory_bytes_max": 0,
        "startup_timeout_s": 30.0,
        "cache_dir": folder.parent / "cache",
    }
    return LoadContext(**(fields | more))


@pytest.fixture(params=["openvino", "onnxruntime", "fake"])
def tensor_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "fake":
        runtime: Any = FakeTensorRuntime()
    else:
        runtime = load_tensor_runtime(
            context(model_files.affine(tmp_path / "m", runtime=request.param))
        )
    yield runtime
    runtime.close()


def test_tensors_are_described_with_a_free_batch(tensor_runtime: Any) -> None:
    ((x,), (y,)) = (tensor_runtime.inputs, tensor_runtime.outputs)
    assert (x.name, x.dtype, x.shape) == ("x", "FP32", (-1, 4))
    assert (y.name, y.dtype, y.shape) == ("y", "FP32", (-1, 3))


def test_outputs_have_the_rows_of_the_inputs_and_stay_as_they_are(tensor_runtime: Any) -> None:
    first = tensor_runtime.run(0, {"x": np.eye(4, dtype=np.float32)})["y"]
    tensor_runtime.run(0, {"x": np.zeros((4, 4), dtype=np.float32)})
    assert first.tolist() == [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5], [3.0, 3.5, 4.0], [4.5, 5.0, 5.5]]


def test_inputs_may_be_views_and_read_only(tensor_runtime: Any) -> None:
    wide = np.zeros((3, 8), dtype=np.float32)
    wide[:, ::2] = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    wide.flags.writeable = False
    outputs = tensor_runtime.run(0, {"x": wide[:, ::2]})
    assert outputs["y"].tolist() == [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5], [3.0, 3.5, 4.0]]


def test_string_tensors_are_any_bytes(tmp_path: Path) -> None:
    """ONNX Runtime's strings are text; a model that passes them on gives back what came."""
    runtime = load_tensor_runtime(context(model_files.strings(tmp_path / "m")))
    given = [bytes(range(256)), b"", b"\0", b"a\0\xff\0", "h\u00e9".encode(), b"\xf4\x8f\xbf\xbf"]
    same = runtime.run(0, {"text": objects(given)})["same"]
    runtime.close()
    assert same.tolist() == given


ECHO = "def model_fn(d): return None\ndef predict_fn(data, model):\n    if data == 'fail': raise ValueError('told to')\n    return data\ndef input_fn(data, kind): return data.decode() if isinstance(data, bytes) else data\ndef output_fn(data, accept): return data, KIND\nKIND = 'text/x-test'\n"  # noqa: E501

SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if body == b"die": os._exit(3)
        status = 500 if body == b"fail" else 200
        if body == b"attributes":
            body = (self.headers["x-amzn-sagemaker-custom-attributes"] or "").encode()
        self.send_response(status)
        self.send_header("content-type", self.headers["content-type"])
        self.send_header("x-amzn-sagemaker-custom-attributes", "seen")
        self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
assert os.environ["SAGEMAKER_BIND_TO_PORT"] == sys.argv[1]
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def server_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "{model_dir}/server.py", "{port}"]
    return model_files.describe(folder, runtime="process", task="payload", command=command)


class Listener:
    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.changed = asyncio.Event()

    def _note(self, what: str, lane: int) -> None:
        self.said.append((what, lane))
        self.changed.set()

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._note("lost", lane)

    def lane_ready(self, lane: int) -> None:
        self._note("ready", lane)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self._note("failed", lane)

    async def until(self, what: str) -> None:
        async with asyncio.timeout(20):
            while what not in [said for said, _ in self.said]:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def payload_runtime(kind: str, folder: Path, listener: Listener) -> AsyncIterator[Any]:
    if kind == "fake":
        runtime: Any = FakePayloadRuntime()
    else:
        make: Callable[[Path], Path] = (
            server_model if kind == "process" else lambda path: model_files.code(path, ECHO)
        )
        runtime = await load_payload_runtime(context(make(folder / "m")), listener)
    try:
        yield runtime
    finally:
        await runtime.close()
        await runtime.close()  # closing twice is allowed


async def batch(runtime: Any, bodies: list[bytes]) -> list[PayloadReply | Returned] | None:
    answered: asyncio.Future[list[PayloadReply | Returned] | None] = asyncio.Future()
    meta = encode_request_meta(RequestMeta(content_type="text/x-test", custom_attributes="mine"))
    runtime.invoke(0, [Payload(meta, body) for body in bodies], answered.set_result)
    assert not answered.done(), "done is called later, never from within invoke"
    return await asyncio.wait_for(answered, 20)


@pytest.mark.parametrize("kind", ["python", "process", "fake"])
async def test_one_reply_per_payload_in_order_and_errors_stay_with_theirs(
    kind: str, tmp_path: Path
) -> None:
    async with payload_runtime(kind, tmp_path, Listener()) as runtime:
        replies = await batch(runtime, [b"a", b"fail", b"c" * 100_000])
        assert replies is not None
        first, failed, last = replies
        assert isinstance(first, PayloadReply)
        assert first.body == b"a"
        assert first.content_type == "text/x-test"
        assert isinstance(failed, PayloadReply)
        assert isinstance(failed.error, ModelError)
        assert failed.error.original_status == 500
        assert isinstance(last, PayloadReply)
        assert last.body == b"c" * 100_000


async def test_a_foreign_server_gets_and_gives_custom_attributes(tmp_path: Path) -> None:
    async with payload_runtime("process", tmp_path, Listener()) as runtime:
        (reply,) = await batch(runtime, [b"attributes"]) or [None]
        assert isinstance(reply, PayloadReply)
        assert (reply.body, reply.custom_attributes) == (b"mine", "seen")


async def test_a_foreign_server_that_ends_is_started_again(tmp_path: Path) -> None:
    listener = Listener()
    async with payload_runtime("process", tmp_path, listener) as runtime:
        replies = await batch(runtime, [b"a", b"die", b"b"])
        assert replies is not None
        assert isinstance(replies[0], PayloadReply)
        assert replies[0].body == b"a"
        assert replies[1:] == [Returned("worker-died"), Returned("worker-lost")]
        await listener.until("ready")
        assert [what for what, _ in listener.said] == ["lost", "ready"]
        replies = await batch(runtime, [b"again"])
        assert replies
        assert isinstance(replies[0], PayloadReply)
        assert replies[0].body == b"again"


def test_a_program_that_ends_or_is_missing_is_named(tmp_path: Path) -> None:
    def load(command: list[str]) -> ModelError:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        model_files.describe(folder, runtime="process", task="payload", command=command)
        with pytest.raises(ModelError) as caught:
            asyncio.run(_load_only(context(folder)))
        return caught.value

    assert load(["/no/such/program"]).message == (
        "e/v: /no/such/program ended with status 127 before /ping answered"
    )
    ended = load([sys.executable, "-c", "raise SystemExit(7)"])
    assert "status 7" in ended.message
    assert is_permanent(ended)
    assert is_permanent(load([sys.executable, "-c", "pass"]))
    killed = load([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert (killed.code, is_permanent(killed)) == ("process-killed", False), "it is tried again"
    crashed = load([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"])
    assert (crashed.code, is_permanent(crashed)) == ("process-ended", True)


async def _load_only(given: LoadContext) -> None:
    runtime = await load_payload_runtime(given, Listener())
    await runtime.close()


def test_a_foreign_server_that_never_gets_healthy_is_a_timeout(tmp_path: Path) -> None:
    folder = model_files.describe(
        tmp_path / "m", runtime="process", task="payload",
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
    )  # fmt: skip
    with pytest.raises(ModelError) as caught:
        asyncio.run(_load_only(context(folder, startup_timeout_s=0.5)))
    assert caught.value.code == "load-timeout"
    assert "SAGEMAKER_BIND_TO_PORT" in caught.value.hint
