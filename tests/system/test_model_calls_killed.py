"""Requests to a Triton Python model that calls another one, while the other's process is killed: a
call that ended with a process is made again, so nobody hears of it.

A request is hit once at most: between two kills more are answered than are in flight.
`CALLS=600` is more of it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.kit import triton_files as files
from tests.kit.polling import wait_until
from tests.kit.processes import pids_in
from tests.kit.servers import Server

CALLS = int(os.environ.get("CALLS", "60"))
AT_ONCE = 4
BETWEEN_KILLS = 4 * AT_ONCE  #: answers

pytestmark = [pytest.mark.system, pytest.mark.timeout(120 + CALLS)]

CALLER = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(given(request, "x")) for request in requests]

    def one(self, x):
        got = call("called", ["y"], x=x).exec()
        if got.has_error():
            raise RuntimeError(got.error().message())
        (tensor,) = got.output_tensors()
        return answer(y=tensor.as_numpy())
"""
CALLED = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.05)
        return [answer(y=given(request, "x")[:, :3]) for request in requests]
"""


def deploy(server: Server, root: Path) -> None:
    x, y = [("x", "FP32", [4])], [("y", "FP32", [3])]
    two_lanes = "instance_group { count: 2 }"
    files.python(root / "caller", CALLER, inputs=x, outputs=y, rows_max=1, more=two_lanes)
    files.python(root / "called", CALLED, inputs=x, outputs=y)
    server.deploy("calls", root, Environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "caller"})


def processes(server: Server) -> list[int]:
    """Of the model that is called."""
    [copy] = server.copies("calls")
    return pids_in("called", below=copy["pid"])


def test_kills_of_a_called_models_process_cost_no_request(tmp_path: Path) -> None:
    server = Server(tmp_path / "state").start()
    answers: list[tuple[int, bytes]] = []
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    ).encode()
    try:
        deploy(server, tmp_path / "repository")
        kills = 0

        def nemesis() -> None:
            nonlocal kills
            while len(answers) + BETWEEN_KILLS < CALLS:
                before = len(answers)
                for pid in wait_until(lambda: processes(server), "a process", 60):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        kills += 1
                wait_until(
                    lambda before=before: len(answers) >= before + BETWEEN_KILLS,
                    "answers after a kill",
                    90,
                )

        killing = threading.Thread(target=nemesis)
        killing.start()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for _ in range(CALLS):
                threads.submit(lambda: answers.append(server.post("/v2/models/calls/infer", body)))
        killing.join()
        lost = [answer for status, answer in answers if status != 200]
        print(f"{len(answers)} answered, {kills} kills, {len(lost)} lost", flush=True)
        assert (len(answers), lost) == (CALLS, [])
    finally:
        server.stop()
