"""TorchScript and Keras in a worker of their own library, and what OpenVINO reads of TensorFlow:
real files of the real libraries, and answers equal to theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit.environments import printed_by, python_of

from penstock.artifacts.detection.detect import detect
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext, Payload, PayloadReply, PayloadRuntime
from penstock.runtimes.loader import load_payload_runtime, load_tensor_runtime
from penstock.wire.frames import RequestMeta, encode_request_meta

TORCH = """
import json, sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x): return torch.softmax(self.layer(x), 1)
class Looked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 2)
    def forward(self, ids, weight): return {"v": self.table(ids) * weight.unsqueeze(-1)}
out = sys.argv[1]
net, looked = Net().eval(), Looked().eval()
torch.jit.trace(net, torch.ones(1, 4)).save(f"{out}/net/model.pt")
torch.jit.script(looked).save(f"{out}/looked/model.ts")
with torch.no_grad():
    one = looked(torch.tensor([1, 2]), torch.tensor([1.0, 0.5]))["v"].tolist()
    print(json.dumps([net(torch.ones(2, 4)).tolist(), one]))
"""

KERAS = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
out = sys.argv[1]
first, second = keras.Input((4,), name="first"), keras.Input((2,), name="second")
net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
both = keras.Model([first, second], keras.layers.Concatenate()([first, second]))
net.save(f"{out}/zip/model.keras"); net.save(f"{out}/hdf5/model.h5")
both.save(f"{out}/two/m.keras")
net.export(f"{out}/saved/1", verbose=False)
lite = tf.lite.TFLiteConverter.from_keras_model(net).convert()
open(f"{out}/lite/model.tflite", "wb").write(lite)
print("ANSWER", json.dumps(net(np.ones((2, 4), "float32")).numpy().tolist()))
"""


class Nobody:
    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None: ...


def context(folder: Path, python: str = "") -> LoadContext:
    found = detect(folder)
    return LoadContext(
        model_dir=found.root, description=found.description, endpoint_name="e",
        variant_name="v", cores=1.0, memory_bytes_max=0, interpreter=python,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def serving(folder: Path, python: Path | None) -> AsyncIterator[PayloadRuntime]:
    runtime = await load_payload_runtime(context(folder, str(python or "")), Nobody())
    try:
        yield runtime
    finally:
        await runtime.close()


async def said(runtime: PayloadRuntime, body: Any, kind: str = "application/json") -> PayloadReply:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    meta = encode_request_meta(RequestMeta(content_type=kind))
    runtime.invoke(0, [Payload(meta, sent)], done.set_result)
    reply: PayloadReply = (await done)[0]
    return reply


def told(reply: PayloadReply) -> Any:
    assert reply.error is None, reply.error
    return json.loads(reply.body)


@pytest.fixture(scope="module")
def torch_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("torchscript")
    for name in ("net", "looked"):
        (out / name).mkdir()
    script = out / "made.py"  # what torch.jit.script reads must lie in a file
    script.write_text(TORCH)
    return out, json.loads(printed_by("compile", str(script), str(out)).splitlines()[-1])


async def test_a_torchscript_file_answers_as_pytorch_does(torch_models: Any) -> None:
    out, (answer, _) = torch_models
    async with serving(out / "net", python_of("compile")) as runtime:
        for body in ([[1, 1, 1, 1]] * 2, {"instances": [[1, 1, 1, 1]] * 2}):
            assert np.allclose(told(await said(runtime, body)), answer, atol=1e-6)
        csv = await said(runtime, b"1,1,1,1\n1,1,1,1\n", "text/csv")
        assert np.allclose(told(csv), answer, atol=1e-6)
        wrong = (await said(runtime, {"inputs": {"z": [[1]]}})).error
        assert isinstance(wrong, ModelError)
        assert (wrong.original_status, wrong.message) == (
            400,
            "the model has no argument 'z'; it has x",
        )
        assert "the model failed: " in str((await said(runtime, [[1, 2]])).error)


async def test_numbers_that_are_looked_up_in_a_table_are_integers(torch_models: Any) -> None:
    out, (_, answer) = torch_models
    async with serving(out / "looked", python_of("compile")) as runtime:
        rows = [{"ids": 1, "weight": 1}, {"ids": 2, "weight": 0.5}]
        for body in ({"inputs": {"ids": [1, 2], "weight": [1, 0.5]}}, rows):
            assert np.allclose(told(await said(runtime, body))["v"], answer, atol=1e-6)


async def test_without_its_library_a_model_says_what_to_install_or_to_type(
    torch_models: Any,
) -> None:
    out, _ = torch_models
    with pytest.raises(ModelError) as caught:
        async with serving(out / "net", None):  # the Python of these tests has no PyTorch
            pass
    assert caught.value.code == "runtime-not-installed"
    assert "penstock compile MODEL.pt --target cpu-fp32 --input x:FP32:-1,4" in caught.value.hint


@pytest.fixture(scope="module")
def keras_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("keras")
    for name in ("zip", "hdf5", "two", "lite"):
        (out / name).mkdir()
    done = subprocess.run(
        [str(python_of("keras")), "-c", KERAS, str(out)],
        capture_output=True, text=True, check=True, timeout=110,
    )  # fmt: skip
    line = next(each for each in done.stdout.splitlines() if each.startswith("ANSWER "))
    return out, json.loads(line.removeprefix("ANSWER "))


@pytest.mark.parametrize("name", ["zip", "hdf5"])
async def test_a_keras_model_answers_as_keras_does(name: str, keras_models: Any) -> None:
    out, answer = keras_models
    async with serving(out / name, python_of("keras")) as runtime:
        assert np.allclose(told(await said(runtime, [[1, 1, 1, 1]] * 2)), answer, atol=1e-5)
        wrong = (await said(runtime, [[1, 2]])).error
        assert isinstance(wrong, ModelError)
        assert (wrong.code, wrong.original_status) == ("bad-shape", 400)


async def test_several_inputs_of_keras_come_by_name(keras_models: Any) -> None:
    out, _ = keras_models
    async with serving(out / "two", python_of("keras")) as runtime:
        sent = {"inputs": {"second": [[5, 6]], "first": [[1, 2, 3, 4]]}}
        assert told(await said(runtime, sent)) == [[1, 2, 3, 4, 5, 6]]
        missing = (await said(runtime, {"inputs": {"first": [[1, 2, 3, 4]]}})).error
        assert missing is not None
        assert "the model's inputs are first, second" in missing.message


@pytest.mark.parametrize("name", ["saved", "lite"])
def test_what_tensorflow_saved_is_read_by_openvino(name: str, keras_models: Any) -> None:
    """Without TensorFlow; number formats are those of any graph, so the comparison is coarse."""
    out, answer = keras_models
    runtime = load_tensor_runtime(context(out / name))
    rows = 2 if name == "saved" else 1
    given = {runtime.inputs[0].name: np.ones((rows, 4), np.float32)}
    result = runtime.run(0, given)[runtime.outputs[0].name]
    assert np.allclose(result, answer[:rows], atol=0.01)
    runtime.close()
