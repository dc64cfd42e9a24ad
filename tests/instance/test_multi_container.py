"""Several containers in one instance: what passes between them, streams, ends and refusals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit import model_files, sequence_models
from tests.kit.instances import instance
from tests.kit.python_models import python_model

from penstock.metrics.counts.container_delta import ContainerDelta
from penstock.wire import frames

STREAM: Final = {"asked": {"stream": True}}
SERIAL, DIRECT = 1, 2
MUCH_PIECES: Final = 500
PIECE_BYTES: Final = 65_536

#: The body says what to write; GATE is a file that lets the second piece go.
WRITES: Final = """
import http.server, os, sys, time
PORT, GATE = sys.argv[1:]

class Writer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self): self.whole(b"")
    def do_POST(self):
        what = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "gated" not in what and "much" not in what and "die" not in what:
            return self.whole(what.encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/x-mine")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if "much" in what:
            for _ in range(500): self.piece(b"x" * 65536)
            return self.piece(b"")
        self.piece(b"one")
        while not os.path.exists(GATE): time.sleep(0.01)
        if "die" in what:
            os._exit(3)
        self.piece(b"two")
        self.piece(b"")
    def piece(self, data):
        self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(data), data))
    def whole(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Writer).serve_forever()
"""
#: Says what it was told, or refuses the type.
SAYS: Final = """
import json

def model_fn(model_dir):
    return None

def input_fn(body, content_type):
    if content_type == "text/refused":
        raise ValueError("not this")
    return body if isinstance(body, str) else body.decode(), content_type

def predict_fn(data, model):
    return data

def output_fn(data, accept):
    return f"{data[0]}|{data[1]}|{accept}", "text/said"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("containers")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[StreamClient]:
    """One copy of containers in a row, and one whose containers are named."""
    says = python_model(place / "says", SAYS)
    writes = place / "writes"
    writes.mkdir()
    (writes / "serve.py").write_text(WRITES)
    command = [sys.executable, "serve.py", "{port}", str(place / "gate")]
    model_files.describe(writes, runtime="process", command=command)

    def containers(*folders: Path) -> list[dict[str, Any]]:
        return [
            {"hostname": f"{number}-{folder.name}", "source": {"uri": folder.as_uri()}}
            for number, folder in enumerate(folders, 1)
        ]

    with instance(place / "run") as running:
        client = StreamClient(running.path)
        client.serve(SERIAL, says, containers=containers(says, writes))
        client.serve(DIRECT, says, containers=containers(writes, says), direct=True)
        yield client
        client.close()


@pytest.fixture
def gate(place: Path) -> Iterator[Path]:
    yield place / "gate"
    (place / "gate").unlink(missing_ok=True)


def test_the_last_container_streams_to_the_caller(client: StreamClient, gate: Path) -> None:
    ident = client.begin(SERIAL, b"gated", content_type="text/a", **STREAM)
    client.begun(ident)
    gate.touch()
    answer = client.whole(ident)
    assert (answer.kind, answer.chunks) == (frames.END, [b"one", b"two"])
    assert answer.content_type == "text/x-mine"


def test_a_caller_who_asks_for_no_stream_gets_one_answer(client: StreamClient, gate: Path) -> None:
    gate.touch()
    answer = client.ask(SERIAL, b"gated", content_type="text/a")
    assert (answer.kind, answer.chunks, answer.body) == (frames.REPLY, [], b"onetwo")


def test_a_reader_that_is_slower_gets_everything(client: StreamClient) -> None:
    answer = client.whole(client.begin(SERIAL, b"much", content_type="text/a", **STREAM))
    assert sum(map(len, answer.chunks)) == MUCH_PIECES * PIECE_BYTES


def test_a_container_that_dies_breaks_its_stream_and_comes_back(
    client: StreamClient, gate: Path
) -> None:
    ident = client.begin(SERIAL, b"die", content_type="text/a", **STREAM)
    client.begun(ident)
    gate.touch()
    error = client.whole(ident).error
    assert (error["code"], error["container"]) == ("stream-broken", "2-writes")
    assert client.event("copy-ready")["copy"] == SERIAL
    assert (
        client.ask(SERIAL, b"again", content_type="text/a").body == b"again|text/a|application/json"
    )


def test_requests_that_are_cancelled_give_their_lanes_back(
    client: StreamClient, gate: Path
) -> None:
    for _ in range(3):
        idents = [
            client.begin(SERIAL, b"gated", content_type="text/a", **STREAM) for _ in range(40)
        ]
        for ident in idents:
            client.cancel(ident)
    gate.touch()
    assert client.ask(SERIAL, b"after", content_type="text/a").body.startswith(b"after")


def test_what_a_container_refuses_has_its_name(client: StreamClient) -> None:
    error = client.ask(SERIAL, b"x", content_type="text/refused").error
    assert (error["family"], error["container"]) == ("model", "1-says")
    assert error["message"].startswith("container 1-says: ")
    error = client.ask(DIRECT, b"x", content_type="text/refused", target_container="2-says").error
    assert (error["family"], error["container"]) == ("model", "2-says")


def test_a_named_container_gets_the_request_as_it_came(client: StreamClient) -> None:
    answer = client.ask(
        DIRECT, b"x", content_type="text/a", accept="text/b", target_container="2-says"
    )
    assert answer.body == b"x|text/a|text/b"
    assert client.ask(DIRECT, b"x", target_container="1-writes").body == b"x"


def counted(client: StreamClient) -> dict[str, ContainerDelta]:
    """The next report of the copy SERIAL."""
    while (event := client.event("container-counts"))["copy"] != SERIAL:
        pass
    return {name: ContainerDelta.from_dict(each) for name, each in event["containers"].items()}


def test_each_container_is_counted_by_itself(client: StreamClient) -> None:
    client.events.clear()
    client.ask(SERIAL, b"x", content_type="text/a")
    while "2-writes" not in counted(client):  # what was before is told now
        pass
    for kind in ("text/a", "text/refused"):
        client.ask(SERIAL, b"x", content_type=kind)
    seen = {name: ContainerDelta() for name in ("1-says", "2-writes")}
    while seen["1-says"].invocations < 2 or not seen["2-writes"].invocations:
        for name, delta in counted(client).items():
            seen[name].add(delta)
    first, second = seen["1-says"], seen["2-writes"]
    assert first.errors_4xx + first.errors_5xx == 1
    assert second.errors_4xx + second.errors_5xx == 0
    assert second.invocations == first.invocations - 1, "what was refused went no further"
    assert first.latency_us.count == first.invocations


def test_a_name_is_needed_and_must_be_known(client: StreamClient) -> None:
    error = client.ask(DIRECT, b"x").error
    assert (error["code"], error["status"]) == ("target-container-required", 400)
    error = client.ask(DIRECT, b"x", target_container="3").error
    assert (error["code"], "1-writes, 2-says" in error["hint"]) == (
        "target-container-unknown", True,
    )  # fmt: skip


def test_only_requests_of_the_runtime_are_taken(client: StreamClient) -> None:
    error = client.ask(SERIAL, b"{}", door="oip").error
    assert (error["code"], error["status"]) == ("door-not-supported", 400)


def test_explain_tells_of_each_container(client: StreamClient) -> None:
    told = client.control(op="explain", copy=DIRECT)
    assert list(told["containers"]) == ["1-writes", "2-says"]


def test_a_model_that_keeps_state_between_requests_is_refused(
    client: StreamClient, place: Path
) -> None:
    says = {"hostname": "says", "source": {"uri": (place / "says").as_uri()}}
    adds = sequence_models.adding_onnx(place / "adding")
    told = client.load(
        3, "unused", containers=[says, {"hostname": "adds", "source": {"uri": adds.as_uri()}}]
    )
    assert told["error"]["code"] == "sequences-of-container"
    assert told["error"]["message"].startswith("container adds: ")
