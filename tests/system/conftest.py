"""Fixtures of the system tests; what they are made of is in tests/kit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.servers import EXAMPLES, Server, remove_all


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, for what a server does with settings, or knows of before."""
    server = Server(tmp_path / "state").start()
    yield server
    server.stop()


class Lent:
    """One server that goes from test to test; to start one takes longer than most of them."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._folder = tempfile.TemporaryDirectory()

    def take(self) -> Server:
        if self._server is None:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            self._server = Server(folder / "state").start()
        return self._server

    def give_back(self) -> None:
        """One that can't be emptied is not lent again."""
        server, self._server = self._server, None
        assert server is not None
        try:
            remove_all(server)
        except BaseException:
            server.kill()
            raise
        self._server = server

    def close(self) -> None:
        if self._server is not None:
            assert self._server.stop() == 0, self._server.log()
        self._folder.cleanup()


@pytest.fixture(scope="session")
def lent() -> Iterator[Lent]:
    made = Lent()
    yield made
    made.close()


@pytest.fixture
def empty_server(lent: Lent) -> Iterator[Server]:
    """A server without models and endpoints; a test that kills it starts it again. What it counted
    and wrote for tests before is there."""
    yield lent.take()
    lent.give_back()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests that leave it as they found it."""
    with tempfile.TemporaryDirectory() as folder:
        running = Server(Path(folder) / "state").start()
        yield running
        assert running.stop() == 0, running.log()


@pytest.fixture(scope="session")
def query_intent(server: Server) -> str:
    """The example endpoint, in service."""
    server.deploy("query-intent", EXAMPLES / "query_intent" / "artifact")
    return "query-intent"


@pytest.fixture(scope="session")
def echo(server: Server) -> str:
    """The echo of the examples, a Python model."""
    server.deploy("echo", EXAMPLES / "echo" / "python")
    return "echo"
