"""A server that may open few files: strangers' connections don't take what it needs itself."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.system.harness import EXAMPLES, Server, wait_until

pytestmark = pytest.mark.system

LIMIT = 256


def test_an_instance_is_replaced_while_all_connections_are_taken(tmp_path: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "few")
    server = Server(tmp_path / "state", prefix=few).start()
    try:
        server.deploy("echo", EXAMPLES / "echo" / "python")
        with ExitStack() as held:
            kept = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(2 * LIMIT):
                connection = socket.create_connection(("127.0.0.1", server.port))
                held.enter_context(connection)
            ask = b"GET /admin/copies HTTP/1.1\r\nHost: localhost\r\n\r\n"
            kept.settimeout(20)
            kept.sendall(ask)
            assert kept.recv(65_536).startswith(b"HTTP/1.1 200 ")
            assert server.process is not None
            children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
            before = set(children.read_text().split())
            for pid in before:
                os.kill(int(pid), signal.SIGKILL)
            body = b"[1.0]"
            request = (
                b"POST /endpoints/echo/invocations HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )

            def answers() -> bool:
                kept.sendall(request)
                return kept.recv(65_536).startswith(b"HTTP/1.1 200 ")

            wait_until(answers, seconds=60, what="a new instance")
            assert not before & set(children.read_text().split())
        assert "the limit on open files is 256" in server.log()
    finally:
        server.stop()
