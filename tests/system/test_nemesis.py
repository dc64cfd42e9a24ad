"""Faults at random moments, all doors in use: each request has exactly one outcome, and its own.

A nemesis works through a schedule drawn from a seed, which is printed: it kills instances and
workers, stops them and lets them go on, fills the link to a stopped one until it pauses, updates
the endpoints and changes their counts. Clients at all doors write down what they see, and
`history.py` checks it. `NEMESIS_SEED` repeats a schedule, `NEMESIS_S` makes it
longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.history import History, Window, problems
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.python_models import pipeline
from tests.kit.servers import Server
from tests.system.door_clients import Clients

pytestmark = pytest.mark.system

ECHO = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.003)
        said = [pb_utils.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", each)]) for each in said]
"""
ECHO_TENSORS = """
backend: "python"
max_batch_size: 16
input [ { name: "x" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
TALK = """
schema: 1
requests_max: 64
steps:
  - name: talk
    python: {function: talk}
    inputs: {messages: $request.messages}
    emit: [{kind: text, data: {text: $piece}}]
"""
TALK_STEPS = """
import time

def talk(messages):
    ident = messages[0]["content"]
    for at in range(4):
        yield f"{ident}-{at}"
        time.sleep(0.02)
"""


def echo(folder: Path) -> Path:
    (folder / "echo" / "1").mkdir(parents=True)
    (folder / "echo" / "1" / "model.py").write_text(ECHO)
    (folder / "echo" / "config.pbtxt").write_text(ECHO_TENSORS)
    return folder


SEED = int(os.environ.get("NEMESIS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
NEMESIS_S = float(os.environ.get("NEMESIS_S", "12"))
LIMITS = {"PENSTOCK_LIMITS_REQUEST_TIMEOUT_S": "25", "PENSTOCK_LIMITS_STREAM_TIMEOUT_S": "25"}
#: The gateway's own limit, and what a machine with too few cores takes to say so.
DEADLINE_S = 35.0
STREAMS = frozenset({"stream", "oip-generate", "oip-grpc-stream", "openai"})
#: From a fault to the last error that it may show as: what was on its way is told at once.
SHOWS_S = 5.0
LARGE_BODIES, LARGE_BYTES = 8, 5 << 20  #: together above the link's buffer


class EndpointNemesis:
    """One fault after the other; each is over, and all copies are well, before the next begins."""

    def __init__(self, server: Server, history: History, rng: random.Random) -> None:
        self.windows: list[Window] = []
        self.done: list[str] = []
        self._server = server
        self._history = history
        self._rng = rng
        self._config = {"echo": "echo", "talk": "talk"}
        self._client = server.client("sagemaker")

    def strike(self, fault: str) -> None:
        endpoint = self._rng.choice(("echo", "talk"))
        print(f"{time.monotonic():.2f} {fault} {endpoint}", flush=True)
        getattr(self, f"_{fault}")(endpoint)
        wait_until(lambda: self._well(endpoint), f"{endpoint} well after {fault}", 60)
        self.done.append(fault)

    def _well(self, endpoint: str) -> bool:
        copies = self._server.copies(endpoint)
        return [copy["state"] for copy in copies] == ["ready", "ready"]

    def _victim(self, endpoint: str) -> dict[str, Any]:
        return self._rng.choice(self._server.copies(endpoint))

    def _may_break_streams(self, fault: str, began: float) -> None:
        codes = frozenset({"stream-broken", "worker-died"})
        self.windows.append(Window(began, began + SHOWS_S, fault, codes, STREAMS))

    def _kill_instance(self, endpoint: str) -> None:
        began, pid = time.monotonic(), int(self._victim(endpoint)["pid"])
        os.kill(pid, signal.SIGKILL)
        self._may_break_streams("kill_instance", began)
        wait_until(lambda: self._replaced(endpoint, pid), "another instance", 60)

    def _replaced(self, endpoint: str, pid: int) -> bool:
        return not alive(pid) and pid not in [c["pid"] for c in self._server.copies(endpoint)]

    def _kill_worker(self, endpoint: str) -> None:
        began, pid = time.monotonic(), int(self._victim(endpoint)["worker_pids"][0])
        os.kill(pid, signal.SIGKILL)
        self._may_break_streams("kill_worker", began)

        def replaced() -> bool:
            copies = self._server.copies(endpoint)
            return all(copy["worker_pids"] and pid not in copy["worker_pids"] for copy in copies)

        wait_until(replaced, "another worker", 60)

    def _stop_instance(self, endpoint: str) -> None:
        """What was sent to it waits until it goes on; nothing is allowed to fail."""
        self._stop(int(self._victim(endpoint)["pid"]), self._rng.uniform(0.2, 1.5))

    def _stop_worker(self, endpoint: str) -> None:
        self._stop(int(self._victim(endpoint)["worker_pids"][0]), self._rng.uniform(0.2, 1.5))

    def _stop(self, pid: int, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            meanwhile()
            time.sleep(seconds)  # how long the fault lasts, not a wait for anything
        finally:
            with contextlib.suppress(ProcessLookupError):  # who stands still too long is ended
                os.kill(pid, signal.SIGCONT)

    def _pause_link(self, _: str) -> None:
        """Large bodies for an instance that reads nothing: the link to it pauses."""
        threads = [
            threading.Thread(target=self._ask_large, args=(number,))
            for number in range(LARGE_BODIES)
        ]

        def begin() -> None:
            for thread in threads:
                thread.start()

        self._stop(int(self._victim("echo")["pid"]), 1.0, begin)
        for thread in threads:
            thread.join(DEADLINE_S)

    def _ask_large(self, number: int) -> None:
        ident = f"large-{len(self.done)}-{number}-" + "x" * LARGE_BYTES
        short, door = ident[:20], "large"
        self._history.add(short, "invoke", door, short)
        body = b'{"instances": [["%b"]]}' % ident.encode()
        status, answer = self._server.post("/endpoints/echo/invocations", body)
        if status == 200 and ident.encode() in answer:
            self._history.add(short, "ok", door, short)
        else:
            self._history.add(short, "fail", door, str(status), answer[:300].decode())

    def _update(self, endpoint: str) -> None:
        config = self._config[endpoint]
        config = f"{endpoint}-b" if config == endpoint else endpoint
        self._client.update_endpoint(EndpointName=endpoint, EndpointConfigName=config)
        assert self._server.wait_in_service(endpoint)["EndpointConfigName"] == config
        self._config[endpoint] = config

    def _scale(self, endpoint: str) -> None:
        for count in (3, 2):
            wanted = {"VariantName": "all", "DesiredInstanceCount": count}
            self._client.update_endpoint_weights_and_capacities(
                EndpointName=endpoint, DesiredWeightsAndCapacities=[wanted]
            )
            self._server.wait_in_service(endpoint)


FAULTS = (
    "kill_instance",
    "kill_worker",
    "stop_instance",
    "stop_worker",
    "pause_link",
    "update",
    "scale",
)


@pytest.fixture
def two_endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`echo` and `talk`, two copies each on instances of their own."""
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    server = Server(tmp_path / "state").start()
    folders = {
        "echo": echo(tmp_path / "echo"),
        "talk": pipeline(tmp_path / "talk", TALK, TALK_STEPS),
    }
    for name, folder in folders.items():
        server.deploy(name, folder, count=2, wait=False)
        server.prepare(f"{name}-b", folder, count=2)
    for name in folders:
        server.wait_in_service(name)
    yield server
    assert server.stop() == 0, server.log()


@pytest.mark.timeout(180 + 5 * NEMESIS_S)
def test_each_request_has_one_outcome_and_its_own_whatever_happens(two_endpoints: Server) -> None:
    print(f"NEMESIS_SEED={SEED} NEMESIS_S={NEMESIS_S:g}")
    rng = random.Random(SEED)
    history = History()
    server = two_endpoints
    nemesis = EndpointNemesis(server, history, rng)
    faults: list[str] = []
    with Clients(history, server.port, server.grpc_port, per_door=1) as clients:
        wait_until(lambda: all(history.count("ok", d) for d in clients.doors), "ok", 30)
        until = time.monotonic() + NEMESIS_S
        while time.monotonic() < until:
            faults = faults or rng.sample(FAULTS, len(FAULTS))
            nemesis.strike(faults.pop())
        marks = {door: history.count("ok", door) for door in clients.doors}
        wait_until(
            lambda: all(history.count("ok", door) > marks[door] for door in clients.doors),
            "answers at every door after the last fault",
            30,
        )
    found = problems(
        history.facts,
        nemesis.windows,
        deadline_s=DEADLINE_S,
        ended_at=time.monotonic() + DEADLINE_S,
    )
    seen = {door: history.count("ok", door) for door in clients.doors}
    assert not found, "\n".join((f"seed {SEED}, {nemesis.done}, {seen}", *found[:20]))
    for endpoint in ("echo", "talk"):
        wait_until(
            lambda name=endpoint: not any(c["outstanding"] for c in server.copies(name)),
            "the last slot free",
            60,
        )
