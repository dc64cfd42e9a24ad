"""Fixtures of the system tests; what they are made of is in harness.py."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.harness import EXAMPLES, Server


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which it may kill."""
    server = Server(tmp_path / "state").start()
    yield server
    server.stop()


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
