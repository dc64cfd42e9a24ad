"""Many streams of a decoupled model at once, and readers that are slow or go away.

The memory of all processes between the model and a reader stays flat, whatever the reader does: the
model's `send` waits.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.kit import triton_files as files
from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.processes import memory_bytes
from tests.kit.servers import ROOT, Server, up

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

STREAMS, CONNECTIONS = 1000, 10
COUNT, SIZE = 300, 1 << 17  #: responses of a slow stream, and numbers in each: 1 MiB
MIB = 1 << 20
#: What one slow reader may cost: some responses under way in each process between.
GROWTH_BYTES_MAX = 48 * MIB
UNDER_WAY_MAX = 40  #: responses that were sent and not read

#: Sends `n` responses of `size` numbers, once `together` requests have come; `n` = -1: one response
#: with how many it has sent for the latest slow one, how many were cancelled, and its process.
COUNTS = """
import threading

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def initialize(self, args):
        self.waiting = []
        self.sent = self.cancelled = 0

    def execute(self, requests):
        for request in requests:
            n, size, together = (given(request, name).item() for name in ("n", "size", "together"))
            sender = request.get_response_sender()
            if n < 0:
                told = np.array([self.sent, self.cancelled, os.getpid()], np.int64)
                sender.send(answer(y=told), FINAL)
                continue
            self.waiting.append((sender, request, n, size))
            if len(self.waiting) >= together:
                waiting, self.waiting = self.waiting, []
                run = self.slow if together == 1 else self.all
                threading.Thread(target=run, args=(waiting,)).start()

    def all(self, waiting):
        for at in range(max(n for _, _, n, _ in waiting)):
            for sender, _, n, _ in waiting:
                if at < n:
                    sender.send(answer(y=np.array([at], np.int64)))
        for sender, *_ in waiting:
            sender.send(flags=FINAL)

    def slow(self, waiting):
        [(sender, request, n, size)] = waiting
        self.sent = 0
        for at in range(n):
            if sender.is_cancelled():
                assert request.is_cancelled()
                self.cancelled += 1
                break
            sender.send(answer(y=np.full(size, at, np.int64)))
            self.sent = at + 1
        sender.send(flags=FINAL)
"""


ECHO = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(y=given(request, "x")) for request in requests]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("streams")
    files.python(
        root / "counts", COUNTS,
        inputs=[(name, "INT64", [1]) for name in ("n", "size", "together")],
        outputs=[("y", "INT64", [-1])],
        rows_max=0,
        more="model_transaction_policy { decoupled: true }",
    )  # fmt: skip
    with up(root) as running:
        running.deploy("counts", root / "counts")
        files.python(
            root / "echo", ECHO,
            inputs=[("x", "UINT8", [-1])], outputs=[("y", "UINT8", [-1])], rows_max=0,
        )  # fmt: skip
        running.deploy("echo", root / "echo")
        yield running


@contextmanager
def client(
    server: Server, how: str, *numbers: int, model: str = "counts"
) -> Iterator[subprocess.Popen[str]]:
    script = ROOT / "tests" / "system" / "scripts" / "triton_streams.py"
    asked = [how, f"127.0.0.1:{server.grpc_port}", model, *map(str, numbers)]
    command = [str(python_of("client-tritonclient")), str(script), *asked]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def say(running: subprocess.Popen[str], line: str) -> None:
    assert running.stdin is not None
    running.stdin.write(f"{line}\n")
    running.stdin.flush()


def heard(running: subprocess.Popen[str]) -> dict[str, Any]:
    assert running.stdout is not None
    told: dict[str, Any] = json.loads(running.stdout.readline())
    return told


def body(n: int, size: int = 1) -> bytes:
    return json.dumps({"n": n, "size": size, "together": 1}).encode()


def progress(server: Server) -> tuple[int, int, int]:
    """Responses that the model has sent, requests that were cancelled, and the model's process;
    over HTTP, beside whatever goes on."""
    status, answer = server.post("/v2/models/counts/generate", body(-1))
    assert status == 200, answer
    sent, cancelled, pid = json.loads(answer)["y"]
    return sent, cancelled, pid


def settled(server: Server, most: int) -> int:
    """Waits until the model sends no more, for a while; returns how many it has sent. No longer
    than it must: who reads nothing for some seconds is cut off."""
    seen, since, looks = -1, 0.0, 0

    def same() -> bool:
        nonlocal seen, since, looks
        sent, now = progress(server)[0], time.monotonic()
        assert sent <= most, "the model went on although nobody reads"
        if sent != seen:
            seen, since, looks = sent, now, 0
        looks += 1
        return looks >= 5 and now >= since + 0.4

    wait_until(same, "the model waits", 60)
    return seen


def memory(server: Server) -> dict[str, int]:
    """By process: the gateway's, the instance's and the model's."""
    [copy] = server.ready_copies("counts")
    pids = {"gateway": server.pid, "instance": copy["pid"], "worker": progress(server)[2]}
    return {name: memory_bytes(pid) for name, pid in pids.items()}


def is_flat(server: Server, before: dict[str, int]) -> None:
    grown = {name: size - before[name] for name, size in memory(server).items()}
    print({name: f"{size / MIB:.1f} MiB" for name, size in grown.items()})
    assert all(size <= GROWTH_BYTES_MAX for size in grown.values()), grown


def test_a_thousand_streams_at_once_have_their_own_counts(server: Server) -> None:
    with client(server, "many", STREAMS, CONNECTIONS) as running:
        told = heard(running)
    assert told == {"right": STREAMS, "responses": sum(at % 23 for at in range(STREAMS))}


def test_a_slow_reader_makes_the_model_wait_and_costs_no_memory(server: Server) -> None:
    with client(server, "slow", COUNT, SIZE) as running:
        say(running, "3")
        assert heard(running) == {"read": 3, "ended": False}
        before = memory(server)
        sent = settled(server, UNDER_WAY_MAX)
        is_flat(server, before)
        for _ in range(5):
            say(running, "20")
            heard(running)
            sent = settled(server, sent + 20 + UNDER_WAY_MAX)
        assert sent < 3 + 5 * 20 + UNDER_WAY_MAX
        is_flat(server, before)
        say(running, "")
        assert heard(running) == {"read": COUNT, "ended": True}
        is_flat(server, before)


def test_a_reader_that_goes_away_ends_the_models_work(server: Server) -> None:
    _, cancelled, _ = progress(server)
    with client(server, "slow", COUNT, SIZE) as running:
        say(running, "3")
        heard(running)
        settled(server, UNDER_WAY_MAX)
        say(running, "leave")
        wait_until(lambda: progress(server)[1] == cancelled + 1, "the model was told", 30)


@contextmanager
def reader(server: Server, count: int) -> Iterator[socket.socket]:
    """A client of generate_stream whose kernel takes little by itself."""
    asked = body(count, SIZE)
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        plain.connect(("127.0.0.1", server.port))
        plain.sendall(
            b"POST /v2/models/counts/generate_stream HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(asked), asked)
        )
        plain.settimeout(60)
        yield plain


def test_a_slow_reader_over_http_costs_as_little(server: Server) -> None:
    with reader(server, COUNT) as plain:
        begun = plain.recv(1000)
        assert begun.startswith(b"HTTP/1.1 200")
        before = memory(server)
        sent = settled(server, UNDER_WAY_MAX)
        is_flat(server, before)
        rest = begun
        events = 0
        while data := plain.recv(1 << 16):
            rest += data
            events += rest.count(b"data: ")
            rest = rest[rest.rfind(b"data: ") + 6 :] if b"data: " in rest else rest[-5:]
        assert events == COUNT > sent
        is_flat(server, before)


def test_a_reader_over_http_that_goes_away_ends_the_models_work(server: Server) -> None:
    _, cancelled, _ = progress(server)
    with reader(server, COUNT) as plain:
        plain.recv(1000)
        settled(server, UNDER_WAY_MAX)
    wait_until(lambda: progress(server)[1] == cancelled + 1, "the model was told", 30)


def test_messages_of_sixty_mebibytes_pass_beside_many_open_streams(server: Server) -> None:
    with client(server, "large", 100, 60 * MIB, model="echo") as running:
        told = heard(running)
    assert told == {"call": True, "stream": True, "too large": "StatusCode.RESOURCE_EXHAUSTED"}
