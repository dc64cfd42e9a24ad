"""What admission forecasts is what live models do: answers a second with all lanes busy.

Sleeping stands for computing, so that what is compared does not depend on the machine. Both sides
are seen in one run: what the gateway says it could answer, and what is answered meanwhile.
"""

from __future__ import annotations

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bench.paced import paced_artifact
from tests.kit.python_models import python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server

from penstock.core.batching.generation_steps import GenerationSpec

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SEQUENCES, ROWS, WORKERS = 8, 4, 4
#: Tokens of an answer: eight sequences take 0.4 s each, twenty answers a second.
ENGINE = GenerationSpec(sequences_max=SEQUENCES, step_s=0.02, sequence_s=0.0, prefill_token_s=0.0)
TOKENS = 20
WORKER = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    time.sleep(0.2)
    return body, content_type
"""
#: 40 ms for each row of a batch, requests of four rows: six answers a second.
MODEL_PY = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        time.sleep(0.04 * sum(len(each) for each in tensors))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", each)]) for each in tensors]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
"""


def tensors(folder: Path) -> Path:
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(MODEL_PY)
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


def capacity_rps(server: Server, endpoint: str) -> float:
    """As the server tells whoever pushes work: of all copies, 0 while nothing was seen."""
    with urllib.request.urlopen(server.url + "/penstock/v1/traffic", timeout=60) as events:
        for line in events:
            if line.startswith(b"data: "):
                told: dict[str, Any] = json.loads(line[6:])
                return float(told["endpoints"][endpoint]["capacity_rps"])
    raise AssertionError("the feed ended")


class Pressed(Repeating):
    """More callers than the model has lanes, until the block ends."""

    def __init__(self, server: Server, path: str, body: dict[str, Any], callers: int) -> None:
        super().__init__(threads=callers)
        self.answers = 0
        self._server, self._path, self._body = server, path, json.dumps(body).encode()

    def step(self) -> None:
        status, told = self._server.post(self._path, self._body)
        assert status == 200, told
        with self.lock:
            self.answers += 1


def measured(server: Server, endpoint: str, path: str, body: Any, callers: int) -> float:
    """Forecast over what was answered, once the model has been busy for a while."""
    with Pressed(server, path, body, callers) as pressed:
        while pressed.answers < 2 * callers:
            time.sleep(0.05)
        before, began = pressed.answers, time.monotonic()
        while pressed.answers < before + 2 * callers:
            time.sleep(0.05)
        rate = (pressed.answers - before) / (time.monotonic() - began)
        return capacity_rps(server, endpoint) / rate


def test_forecasts_are_what_live_models_do(fresh_server: Server, tmp_path: Path) -> None:
    """An engine's answers are not counted once for each sequence beside them, nor rows as
    requests: either was wrong by a factor of four and more."""
    server = fresh_server
    invocations = "/endpoints/{}/invocations".format
    rows = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [ROWS, 1], "data": [1.0] * ROWS}]}
    prompt = {"prompt": "Once", "max_tokens": TOKENS}
    with paced_artifact(ENGINE) as folder:
        server.deploy("tokens", folder, wait=False)
        server.deploy("rows", tensors(tmp_path / "rows"), wait=False)
        lanes = f"schema: 1\nruntime: python\nlanes: {WORKERS}\n"
        server.deploy(
            "workers", python_model(tmp_path / "workers", WORKER, model_yaml=lanes), wait=False
        )
        waiter = server.client("sagemaker").get_waiter("endpoint_in_service")
        for name in ("tokens", "rows", "workers"):
            waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        with ThreadPoolExecutor(4) as pool:
            asked = {
                "tokens": ("tokens", invocations("tokens"), prompt, 2 * SEQUENCES),
                "rows": ("rows", "/v2/models/rows/infer", rows, 8),
                "workers": ("workers", invocations("workers"), {"a": 1}, 2 * WORKERS),
            }
            runs = {name: pool.submit(measured, server, *each) for name, each in asked.items()}
            told = {name: run.result() for name, run in runs.items()}
    assert all(0.5 < ratio < 2.0 for ratio in told.values()), told
