"""How much a stranger can make a real server hold: bodies that never end, or wait for their turn.

Memory may grow by `GROWTH_MAX` times the budget for bodies: a body is copied once when its last
byte is there, and the allocator keeps some of what it had.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.kit.polling import wait_until
from tests.kit.processes import memory_bytes
from tests.kit.python_models import python_model
from tests.kit.servers import Server, up

pytestmark = pytest.mark.system

MIB = 2**20
BUDGET_BYTES = 16 * MIB
GROWTH_MAX = 3
BODY_BYTES = 5 * MIB

WAITING = """
    import os, time

    def model_fn(model_dir, context=None):
        return None

    def predict_fn(data, model):
        deadline = time.monotonic() + 60
        while not os.path.exists({go!r}) and time.monotonic() < deadline:
            time.sleep(0.02)
        return data
"""


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LIMITS_BODIES_BYTES_MAX", str(BUDGET_BYTES))


class Growth:
    """By how much the server's resident memory grew at most since this was made."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # its peak is what it has now
        self._before = memory_bytes(self._pid)

    def bytes(self) -> int:
        grown = memory_bytes(self._pid, "VmHWM") - self._before
        print(f"grown by {grown / MIB:.1f} MiB")
        return grown


def send(connection: socket.socket, data: bytes, *, seconds: float = 10) -> None:
    """As much of it as the server takes; it may refuse, or stop reading, at any byte."""
    connection.settimeout(seconds)
    with suppress(OSError, TimeoutError):
        connection.sendall(data)


def head(path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def unfinished_bodies(server: Server, *headers: str) -> int:
    """By how much 50 bodies of 5 MiB without their last byte make the server grow."""
    growth = Growth(server)
    body = b"x" * (BODY_BYTES - 1)
    with ExitStack() as held:
        for _ in range(50):
            connection = socket.create_connection(("127.0.0.1", server.port))
            held.enter_context(connection)
            send(connection, head("/endpoints/any/invocations", BODY_BYTES, *headers) + body)
        assert server.ask("/ping")[0] == 200
        return growth.bytes()


def test_unfinished_bodies_grow_the_server_by_the_budget_and_no_more(
    tmp_path: Path, budget: None
) -> None:
    with up(tmp_path) as server:
        assert unfinished_bodies(server) < GROWTH_MAX * BUDGET_BYTES
        assert server.post("/endpoints/any/invocations", b"{}")[0] == 400


@pytest.mark.parametrize(
    "credentials",
    [
        "Authorization: x",
        "Authorization: Bearer x",
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAUNKNOWN/20260101/us-east-1/sagemaker/"
        "aws4_request, SignedHeaders=host;x-amz-date, Signature=" + "0" * 64,
    ],
)
def test_a_stranger_s_bodies_are_not_read_at_all(
    tmp_path: Path, budget: None, credentials: str
) -> None:
    with up(tmp_path, "--auth") as server:
        assert unfinished_bodies(server, credentials) < 8 * MIB


def test_refused_requests_of_a_pipeline_keep_no_bodies(tmp_path: Path, budget: None) -> None:
    """The first request of each connection waits for its model, those behind it are refused."""
    go = tmp_path / "go"
    model = python_model(tmp_path / "model", WAITING.format(go=str(go)))
    with up(tmp_path) as server:
        server.deploy("waits", model)
        growth = Growth(server)
        body = head("/endpoints/unknown/invocations", BODY_BYTES) + b"x" * BODY_BYTES
        with ExitStack() as held:
            connections = []
            for _ in range(3):
                connection = socket.create_connection(("127.0.0.1", server.port))
                connections.append(held.enter_context(connection))
                send(connection, head("/endpoints/waits/invocations", 2) + b"[]")
                for _ in range(20):
                    send(connection, body)
            assert growth.bytes() < GROWTH_MAX * BUDGET_BYTES
            go.touch()
            for connection in connections:
                connection.settimeout(30)
                answers = b""
                while answers.count(b"HTTP/1.1 ") < 21:
                    answers += connection.recv(65_536)
                assert answers.startswith(b"HTTP/1.1 200")
                assert answers.count(b"HTTP/1.1 400") == 20
        wait_until(
            lambda: server.post("/endpoints/waits/invocations", b"[]")[0] == 200, "an answer", 20
        )
