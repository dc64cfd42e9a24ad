"""A server that may open few files: strangers' connections don't take what it needs itself."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.system.harness import EXAMPLES, Server, wait_until

pytestmark = pytest.mark.system

LIMIT = 256


class Strangers(threading.Thread):
    """Connections that say nothing; those that the server closes are opened again, 500 a second."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__()
        self._address = ("127.0.0.1", port)
        self._connections = [socket.create_connection(self._address) for _ in range(count)]
        self._stop_asked = threading.Event()

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_asked.set()
        self.join()
        for connection in self._connections:
            connection.close()

    def run(self) -> None:
        while not self._stop_asked.wait(0.02):
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
            strangers = held.enter_context(Strangers(server.port, 2 * LIMIT))
            strangers.start()
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
