"""A lower count: which copy goes, and that nothing which it has to do is cut.

Streams are pipelines whose step waits at a gate, so what is in flight at a moment is a fact.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kit.gate import Gate
from tests.kit.polling import wait_until
from tests.kit.python_models import pipeline
from tests.kit.servers import Server

pytestmark = pytest.mark.system

DECLARED = """
schema: 1
requests_max: 16
steps:
  - name: say
    python: {function: say}
    inputs: {name: $request.name}
    emit: [{kind: said, data: {said: $piece}}]
"""
STEP = """
import socket

def say(name):
    yield "begun"
    with socket.create_connection(("127.0.0.1", {port})) as gate:
        gate.sendall(name.encode() + b"\\n")
        gate.recv(1)
    yield "ended"
"""


class GatedStream:
    """An answer that has begun and waits at the gate."""

    def __init__(self, server: Server, name: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = json.dumps({"name": name, "stream": True})
        self._connection.request("POST", "/endpoints/talk/invocations", body)
        self._answer = self._connection.getresponse()
        self._first = self._answer.read1(1)
        assert self._first

    def to_the_end(self) -> list[str]:
        """The kinds of its events; raises where it was cut."""
        said = (self._first + self._answer.read()).decode()
        self._connection.close()
        return [line[len("event: ") :] for line in said.splitlines() if line.startswith("event: ")]


WHOLE = ["said", "said", "done"]


@contextmanager
def talking(server: Server, folder: Path) -> Iterator[Gate]:
    """An endpoint of two copies, and the shut gate at which its streams wait."""
    with Gate() as gate:
        step = STEP.replace("{port}", str(gate.port))
        server.deploy("talk", pipeline(folder, DECLARED, step), count=2)
        gate.shut()
        try:
            yield gate
        finally:
            gate.open()


def busy(server: Server) -> dict[int, int]:
    """Copy -> requests on it."""
    return {copy["copy"]: copy["outstanding"] for copy in server.copies("talk") if copy["copy"]}


def test_of_two_copies_the_idle_one_goes_and_the_stream_ends_by_itself(
    empty_server: Server, tmp_path: Path
) -> None:
    """The idle copy is the older one, which would stay if slots alone decided."""
    server = empty_server
    with talking(server, tmp_path / "talk") as gate:
        short = GatedStream(server, "short")
        # Its first piece is out before it is at the gate, which lets go whoever came first.
        wait_until(lambda: len(gate.waiting) == 1, "the short one at the gate", 60)
        long = GatedStream(server, "long")
        wait_until(lambda: len(gate.waiting) == 2, "both at the gate", 60)
        assert sorted(busy(server).values()) == [1, 1]
        older, newer = sorted(busy(server))
        gate.let_one()
        assert short.to_the_end() == WHOLE
        wait_until(lambda: busy(server) == {older: 0, newer: 1}, "one idle", 60)
        server.set_count("talk", 1)
        wait_until(lambda: busy(server) == {newer: 1}, "the idle one is gone", 60)
        activities = server.get("/admin/endpoints/talk/activities")["activities"]
        assert [one["reason"] for one in activities if one["what"] == "drain copy"] == [
            "variant-count"
        ]
        gate.open()
        assert long.to_the_end() == WHOLE


def test_with_streams_on_both_the_one_that_drains_ends_them_and_the_choice_stands(
    empty_server: Server, tmp_path: Path
) -> None:
    server = empty_server
    with talking(server, tmp_path / "talk") as gate:
        streams = [GatedStream(server, str(number)) for number in range(3)]
        wait_until(lambda: len(gate.waiting) == 3, "all at the gate", 60)
        wait_until(lambda: sorted(busy(server).values()) == [1, 2], "on both", 60)
        less, more = sorted(busy(server), key=busy(server).__getitem__)
        server.set_count("talk", 1)

        def states() -> dict[int, str]:
            return {copy["copy"]: copy["state"] for copy in server.copies("talk")}

        drains = {more: "ready", less: "draining"}
        wait_until(lambda: states() == drains, "a drain", 60)
        late = GatedStream(server, "late")
        wait_until(lambda: busy(server)[more] == 3, "the late one is there", 60)
        assert states() == drains
        gate.open()
        assert [each.to_the_end() for each in (*streams, late)] == [WHOLE] * 4
        wait_until(lambda: states() == {more: "ready"}, "the drained one is gone", 60)
