"""The load of streamed answers: what it reads out of them, and when it lets requests go."""

from __future__ import annotations

import itertools
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench.generation_load import Answer, completion, streamed, whole

STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(*events: Any) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    body = "".join(f"data: {line}\n\n" for line in lines).encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"text": text}], "usage": None}


def usage(tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": tokens}}


class SameBytesServer(socketserver.ThreadingTCPServer):
    """Answers every request with the same bytes."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answer: bytes) -> None:
        super().__init__(("127.0.0.1", 0), SameBytesHandler)
        self.answer = answer
        self.answers_max = 1000  #: of a connection, which is closed then

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class SameBytesHandler(socketserver.StreamRequestHandler):
    server: SameBytesServer

    def handle(self) -> None:
        for _ in range(self.server.answers_max):
            if not self.rfile.readline():
                return
            length = 0
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            self.rfile.read(length)
            self.wfile.write(self.server.answer)


@pytest.fixture
def serving() -> Iterator[Callable[[bytes], SameBytesServer]]:
    servers: list[SameBytesServer] = []

    def serve(answer: bytes) -> SameBytesServer:
        server = SameBytesServer(answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def asked(server: SameBytesServer, count: int, **options: Any) -> list[Answer]:
    bodies = [completion("a b", 3, "m")] * count
    return streamed(server.url, bodies, [0.0] * count, patience_s=20.0, **options)


def test_an_answer_is_the_text_of_all_its_events_and_the_servers_own_count_of_tokens(
    serving: Callable[[bytes], SameBytesServer],
) -> None:
    server = serving(
        STREAM.encode()
        + chunk(piece("one"))
        + chunk(piece(" two"), piece(" three"), usage(3), "[DONE]")
        + b"0\r\n\r\n"
    )
    answers = whole(asked(server, 2))
    assert len(answers) == 2
    for answer in answers:
        assert (answer.text, answer.tokens) == ("one two three", 3)
        assert answer.sent <= answer.first <= answer.last


def test_a_stream_without_its_end_is_no_answer(serving: Callable[[bytes], SameBytesServer]) -> None:
    server = serving(STREAM.encode() + chunk(piece("one")) + b"0\r\n\r\n")
    (answer,) = asked(server, 1)
    assert answer.error == "the stream broke off"


def test_a_refusal_tells_its_status_and_words(serving: Callable[[bytes], SameBytesServer]) -> None:
    body = b'{"error": "busy"}'
    head = b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n" % len(body)
    (answer,) = asked(serving(head + body), 1)
    assert answer.error == '503 {"error": "busy"}'
    with pytest.raises(RuntimeError, match="503"):
        whole([answer])


def test_static_batching_sends_the_next_batch_when_the_last_one_is_answered(
    serving: Callable[[bytes], SameBytesServer],
) -> None:
    server = serving(STREAM.encode() + chunk(piece("x"), usage(1), "[DONE]") + b"0\r\n\r\n")
    answers = whole(asked(server, 6, in_flight_max=2, one_batch=True))
    assert len(answers) == 6
    for batch in (2, 4):
        ended = max(answer.last for answer in answers[batch - 2 : batch])
        assert all(answer.sent >= ended for answer in answers[batch : batch + 2])


def test_no_more_requests_are_on_their_way_than_allowed(
    serving: Callable[[bytes], SameBytesServer],
) -> None:
    server = serving(STREAM.encode() + chunk(piece("x"), usage(1), "[DONE]") + b"0\r\n\r\n")
    answers = whole(asked(server, 5, in_flight_max=1))
    assert len(answers) == 5
    for before, after in itertools.pairwise(answers):
        assert after.sent >= before.last


def test_a_request_on_a_connection_that_was_closed_while_idle_is_sent_again(
    serving: Callable[[bytes], SameBytesServer],
) -> None:
    """Servers close what stands idle. The request was not read, and its time goes on."""
    server = serving(STREAM.encode() + chunk(piece("x"), usage(1), "[DONE]") + b"0\r\n\r\n")
    server.answers_max = 1
    answers = whole(asked(server, 5, in_flight_max=1))
    assert [answer.text for answer in answers] == ["x"] * 5
    assert all(answer.sent <= answer.first for answer in answers)


def test_a_connection_that_ends_without_a_word_is_no_answer(
    serving: Callable[[bytes], SameBytesServer],
) -> None:
    server = serving(b"")
    server.answers_max = 1
    (answer,) = asked(server, 1)
    assert answer.error == "there was no answer"
