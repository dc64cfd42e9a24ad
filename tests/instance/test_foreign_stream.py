"""Answers of a model's own server that are passed on as they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit import model_files
from tests.kit.instances import instance

from penstock.wire import frames

STREAM: Final = {"asked": {"stream": True}}
WHOLE_PIECES: Final = 2000
PIECE_BYTES: Final = 65_536

#: The body says what to write; GATE is a file that lets the second piece go.
SERVE: Final = """
import http.server, os, sys, time
PORT, GATE = sys.argv[1:]

class Writer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self): self.whole(200, b"")
    def do_POST(self):
        what = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if what == "refuse":
            return self.whole(418, b"no tea")
        if what == "whole":
            return self.whole(200, b"all of it")
        self.send_response(200)
        self.send_header("Content-Type", "text/x-mine")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if what == "nothing":
            return self.piece(b"")
        if what == "much":
            for _ in range(2000): self.piece(b"x" * 65536)
            return self.piece(b"")
        self.piece(b"one")
        while not os.path.exists(GATE): time.sleep(0.01)
        if what == "die":
            os._exit(3)
        self.piece(b"two")
        self.piece(b"")
    def piece(self, data):
        self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(data), data))
    def whole(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Writer).serve_forever()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[StreamClient]:
    folder = place / "model"
    folder.mkdir()
    (folder / "serve.py").write_text(SERVE)
    command = [sys.executable, "serve.py", "{port}", str(place / "gate")]
    model_files.describe(folder, runtime="process", command=command)
    with instance(place / "run") as running:
        client = StreamClient(running.path)
        client.serve(1, folder)
        yield client
        client.close()


@pytest.fixture
def gate(place: Path) -> Iterator[Path]:
    yield place / "gate"
    (place / "gate").unlink(missing_ok=True)


def test_a_piece_leaves_before_the_next_is_written(client: StreamClient, gate: Path) -> None:
    ident = client.begin(1, b"gated", **STREAM)
    client.begun(ident)
    gate.touch()
    answer = client.whole(ident)
    assert (answer.kind, answer.chunks) == (frames.END, [b"one", b"two"])
    assert answer.content_type == "text/x-mine"


def test_who_asks_for_no_stream_gets_one_whole_answer(client: StreamClient, gate: Path) -> None:
    gate.touch()
    answer = client.ask(1, b"gated")
    assert (answer.kind, answer.chunks, answer.body) == (frames.REPLY, [], b"onetwo")
    answer = client.ask(1, b"gated", custom_attributes='{"stream":true}')
    assert answer.kind == frames.REPLY, "the caller's own words ask for nothing"


@pytest.mark.parametrize(("what", "body"), [(b"whole", b"all of it"), (b"nothing", b"")])
def test_what_has_a_length_or_no_content_is_no_stream(
    client: StreamClient, what: bytes, body: bytes
) -> None:
    answer = client.ask(1, what, **STREAM)
    assert (answer.kind, answer.chunks, answer.body) == (frames.REPLY, [], body)


def test_a_refusal_is_an_error_with_its_status(client: StreamClient) -> None:
    error = client.ask(1, b"refuse", **STREAM).error
    assert (error["original_status"], error["original_message"]) == (418, "no tea")


def test_a_reader_that_is_slower_than_the_server_gets_everything(client: StreamClient) -> None:
    """More than all buffers on the way hold."""
    ident = client.begin(1, b"much", **STREAM)
    answer = client.whole(ident)
    assert sum(map(len, answer.chunks)) == WHOLE_PIECES * PIECE_BYTES


def test_one_that_is_cancelled_frees_its_lane(client: StreamClient, gate: Path) -> None:
    ident = client.begin(1, b"gated", **STREAM)
    client.begun(ident)
    client.cancel(ident)
    assert client.ask(1, b"whole", **STREAM).body == b"all of it"


def test_a_reader_that_goes_away_frees_its_lane(client: StreamClient) -> None:
    """Also where it read too slowly before, so that the server waits."""
    other = StreamClient(client.socket.getpeername())
    other.begun(other.begin(1, b"much", **STREAM))
    other.close()
    assert client.ask(1, b"whole", **STREAM).body == b"all of it"


def test_a_server_that_dies_in_the_middle_breaks_the_stream(
    client: StreamClient, gate: Path
) -> None:
    """It is too late for another copy: the caller has a piece."""
    ident = client.begin(1, b"die", **STREAM)
    client.begun(ident)
    gate.touch()
    assert client.whole(ident).error["code"] == "stream-broken"
    client.event("copy-ready")
    assert client.ask(1, b"whole", **STREAM).body == b"all of it"
