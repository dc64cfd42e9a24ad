"""What a model raises or returns fails its own request, in words that any reader can read.

Each case is sent to one real instance, and the very same worker process answers the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance, serving

from penstock.wire import frames

HOSTILE = """
import asyncio, math, sys, threading
sys.stderr.reconfigure(errors="strict")  # a model may do that, too
LONE = "\\udc80 and \\ud800"
class Unreadable(Exception):
    def __str__(self): raise RuntimeError("no text")
    __repr__ = __str__
class Ends(Exception):
    def __str__(self): raise SystemExit(3)
class Odd(str):
    def encode(self, *_): return 7
    def __str__(self): return self
class Loops(Exception):
    def __str__(self): return str(self)
class Own(BaseException): pass
class Big(Exception):
    status_code = 1 << 80
def deep(n): return deep(n + 1)
def nested():
    value = []
    for _ in range(100_000): value = [value]
    return value
def group(): raise BaseExceptionGroup(LONE, [Own(LONE), ExceptionGroup("inner", [ValueError(1)])])
def raised(error): raise error
def own_error():
    from penstock.errors import ModelError
    error = ModelError("odd", "said")
    error.message, error.hint, error.status, error.retry_after_s = LONE, 7, 1 << 90, math.nan
    raise error
CASES = {
    "lone-surrogate": lambda: raised(ValueError(LONE)),
    "huge": lambda: raised(ValueError("x" * (64 << 20))),
    "unreadable": lambda: raised(Unreadable()),
    "text-that-ends": lambda: raised(Ends()),
    "text-of-its-own": lambda: raised(ValueError(Odd("odd"))),
    "text-without-end": lambda: raised(Loops()),
    "no-text": lambda: raised(ValueError(object(), b"\\xff", None)),
    "own-base": lambda: raised(Own(LONE)),
    "exit": lambda: sys.exit(LONE),
    "interrupt": lambda: raised(KeyboardInterrupt(LONE)),
    "cancel": lambda: raised(asyncio.CancelledError()),
    "generator-exit": lambda: raised(GeneratorExit()),
    "recursion": lambda: deep(0),
    "group": group,
    "odd-status": lambda: raised(Big("big")),
    "lock": lambda: raised(ValueError(threading.Lock())),
    "name": lambda: raised(type(LONE, (Exception,), {})("named")),
    "own-error": own_error,
    "answers-surrogate": lambda: {"text": LONE},
    "answers-object": lambda: object(),
    "answers-deep": nested,
    "answers-large-number": lambda: [1 << 80],
    "answers-itself": lambda: (lambda value: value.append(value) or value)([]),
}
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    return CASES[data]() if data in CASES else data
"""
CASES = [
    line.split('"')[1] for line in HOSTILE.partition("CASES")[2].splitlines() if line[:5] == '    "'
]

HEADS = """
LONE = "\\udc80"
def model_fn(model_dir): return None
def transform_fn(model, data, content_type, accept, context):
    if "attributes" in data: context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", LONE)
    if "long" in data: context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "x" * copy * 10_000)
    if "number" in data: context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", 7)
    if "type" in data: return "body", LONE
    if "text" in data: return LONE
    return data
"""  # noqa: E501


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("models")
    models = {
        1: model_files.code(folder / "m", HOSTILE, rows_max=1),
        2: model_files.code(folder / "h", HEADS, rows_max=1),
    }
    with serving(tmp_path_factory.mktemp("instance"), models) as client:
        yield client


def workers(client: FrameClient) -> list[int]:
    copies = client.control(op="status")["copies"]
    return [worker["pid"] for copy in copies for worker in copy["workers"]]


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_this_requests_alone(client: FrameClient, case: str) -> None:
    before = workers(client)
    failed = client.invoke(1, b'"%b"' % case.encode())
    assert failed.kind == frames.ERROR, f"{case}: {failed.reason}"
    assert 400 <= failed.error["original_status"] <= 599
    assert len(failed.body) < 100_000
    assert client.invoke(1, b'"innocent"').json == "innocent"
    assert workers(client) == before


@pytest.mark.parametrize("case", ["attributes", "long", "number", "type", "text"])
def test_words_for_a_head_that_no_head_can_hold_fail_this_request_alone(
    client: FrameClient, case: str
) -> None:
    before = workers(client)
    assert client.invoke(2, case.encode(), content_type="text/csv").kind == frames.ERROR
    assert client.invoke(2, b"well", content_type="text/csv").body == b"well"
    assert workers(client) == before


TRITON = """
import numpy as np
import triton_python_backend_utils as pb
LONE = "\\udc80"
class Mute:
    def __str__(self):
        raise SystemExit(LONE)
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            said = pb.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)[0]
            if said == b"raise": raise ValueError(LONE)
            if said == b"exit": raise SystemExit(LONE)
            if said == b"error":
                answers.append(pb.InferenceResponse([], pb.TritonError(LONE)))
            elif said == b"odd-error":
                answers.append(pb.InferenceResponse([], pb.TritonError(object(), LONE)))
            elif said == b"tensor":
                answers.append(pb.InferenceResponse([pb.Tensor("OUT", np.array([LONE], object))]))
            elif said == b"name":
                answers.append(pb.InferenceResponse([pb.Tensor(LONE, np.array([1]))]))
            elif said == b"mute":
                said = Mute()
                answers.append(pb.InferenceResponse([pb.Tensor("OUT", np.array([said], object))]))
            else:
                answers.append(pb.InferenceResponse([pb.Tensor("OUT", np.array([said], object))]))
        return answers
"""


def test_tritons_python_models_keep_the_rule(client: FrameClient, tmp_path: Path) -> None:
    def text(name: str) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": "BYTES", "shape": [1]}]

    folder = model_files.code(tmp_path / "t", TRITON)
    model_files.describe(
        folder,
        runtime="python",
        file="code/inference.py",
        batching={"rows_max": 0},
        triton_python=True,
        inputs=text("TEXT"),
        outputs=text("OUT"),
    )
    client.serve(3, folder)
    before = workers(client)
    for case in ("raise", "exit", "error", "odd-error", "tensor", "name", "mute"):
        failed = triton(client, case)
        assert failed.kind == frames.ERROR, f"{case}: {vars(failed)}"
        assert b"innocent" in triton(client, "innocent").body
    assert workers(client) == before


def triton(client: FrameClient, said: str) -> FrameAnswer:
    tensor = b'{"name":"TEXT","datatype":"BYTES","shape":[1],"data":["%b"]}' % said.encode()
    return client.invoke(
        3, b'{"inputs":[%b]}' % tensor, content_type="application/json", door="oip"
    )


POISON = """
import os, time
def model_fn(model_dir): return None
def predict_fn(data, model):
    if data == "poison": os._exit(1)
    if data == "hang": time.sleep(600)
    return data
"""


def one_batch(client: FrameClient, copy: int, *bodies: bytes) -> list[FrameAnswer]:
    """What is read at once is queued before any of it leaves."""
    read = b"".join(client.frame(copy * 10_000 + at, copy, body) for at, body in enumerate(bodies))
    client.socket.sendall(read)
    return [FrameAnswer(client.answer(copy * 10_000 + at)) for at in range(len(bodies))]


def test_of_a_batch_whose_worker_died_the_one_it_was_busy_with_is_told_apart(
    client: FrameClient, tmp_path: Path
) -> None:
    client.load(4, model_files.code(tmp_path / "p", POISON, rows_max=8))
    answers = one_batch(client, 4, b'"a"', b'"b"', b'"poison"', b'"c"')
    assert [answer.reason for answer in answers] == [
        "worker-died-in-company",
        "worker-died-in-company",
        "worker-died",
        "worker-lost",
    ]


def test_a_hang_is_laid_at_the_one_that_hangs(client: FrameClient, tmp_path: Path) -> None:
    folder = model_files.code(
        tmp_path / "h", POISON, rows_max=8, environment={"SAGEMAKER_MODEL_SERVER_TIMEOUT": "2"}
    )
    client.load(5, folder)
    before, hangs, behind = one_batch(client, 5, b'"a"', b'"hang"', b'"c"')
    assert (before.reason, behind.reason) == ("worker-died-in-company", "worker-lost")
    assert hangs.error["code"] == "model-timeout"


def test_what_an_artifact_says_of_itself_can_be_answered(
    shared_plain: InstanceProcess, tmp_path: Path
) -> None:
    """A lone surrogate in model.yaml must not leave a load unanswered."""
    client = shared_plain.client()
    folder = model_files.code(tmp_path / "m", "def predict_fn(d, m): return d\n")
    (folder / "code" / "inference.py").write_text("raise ValueError('\\udc80')\n")
    error = client.load(9, folder)["error"]
    assert error["code"] == "model-code-failed"
    assert "\\udc80" in error["message"]


@pytest.fixture
def shared_plain(tmp_path: Path) -> Iterator[InstanceProcess]:
    with instance(tmp_path) as running:
        yield running
