"""A server that may open few files: strangers' connections don't take what it needs itself."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.processes import children_of
from tests.kit.repeating import Repeating
from tests.kit.servers import EXAMPLES, Server

pytestmark = pytest.mark.system

LIMIT = 256


class Strangers(Repeating):
    """Connections that say nothing; those that the server closes are opened again, 500 a second."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(pause_s=0.02)
        self._address = ("127.0.0.1", port)
        self._connections = [socket.create_connection(self._address) for _ in range(count)]

    def __exit__(self, *how: Any) -> None:
        super().__exit__(*how)
        for connection in self._connections:
            connection.close()

    def step(self) -> None:
        ended = [at for at, each in enumerate(self._connections) if has_ended(each)]
        for at in ended[:10]:
            self._connections[at].close()
            self._connections[at] = socket.create_connection(self._address)


def has_ended(connection: socket.socket) -> bool:
    try:
        connection.recv(65_536, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True  # it was told something, or cut


def test_an_instance_is_replaced_while_all_connections_are_taken(tmp_path: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "few")
    server = Server(tmp_path / "state", prefix=few).start()
    try:
        server.deploy("echo", EXAMPLES / "echo" / "python")
        with ExitStack() as held:
            kept = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            held.enter_context(Strangers(server.port, 2 * LIMIT))
            ask = b"GET /admin/copies HTTP/1.1\r\nHost: localhost\r\n\r\n"
            kept.settimeout(20)
            kept.sendall(ask)
            assert kept.recv(65_536).startswith(b"HTTP/1.1 200 ")
            before = set(children_of(server.pid))
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            body = b"[1.0]"
            request = (
                b"POST /endpoints/echo/invocations HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )

            def answers() -> bool:
                kept.sendall(request)
                return kept.recv(65_536).startswith(b"HTTP/1.1 200 ")

            wait_until(answers, "a new instance", 60)
            assert not before & set(children_of(server.pid))
        assert "the limit on open files is 256" in server.log()
    finally:
        server.stop()
