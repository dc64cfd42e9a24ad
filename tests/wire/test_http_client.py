"""The HTTP/1.1 client, byte for byte: what is an answer, and what is never used again.

The connection is the real one; its transport is a list of what was written.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.wire.http_client import (
    HttpAnswer,
    HttpClientConnection,
    HttpClientSpec,
    WholeAnswer,
    request_of,
)

SPEC = HttpClientSpec(head_bytes_max=200, fields_max=4, body_bytes_max=10)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


class RecordedTransport(asyncio.Transport):
    """What the connection did to its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.did: list[str] = []

    def write(self, data: Any) -> None:
        self.sent += data

    def abort(self) -> None:
        self.did.append("abort")

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")


class HeardEvents:
    """An `AnswerReader` that notes what it hears."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]], length: int | None) -> None:
        self.events.append((status, headers, length))

    def on_body(self, data: bytes) -> None:
        self.events.append(data)

    def on_end(self) -> None:
        self.events.append("end")

    def on_lost(self, reason: str, detail: str) -> None:
        self.events.append(reason)

    @property
    def joined(self) -> list[Any]:
        """With the pieces of the body as one."""
        pieces = [one for one in self.events if isinstance(one, bytes)]
        others = [one for one in self.events if not isinstance(one, bytes)]
        return [*others[:1], b"".join(pieces), *others[1:]] if pieces else others


def connected(spec: HttpClientSpec = SPEC) -> tuple[HttpClientConnection, RecordedTransport]:
    connection, transport = HttpClientConnection(spec), RecordedTransport()
    connection.connection_made(transport)
    return connection, transport


def asked(
    *reads: bytes, eof: bool = False, head_only: bool = False, spec: HttpClientSpec = SPEC
) -> tuple[HeardEvents, HttpClientConnection]:
    """What is heard where the server says `reads`."""
    heard, (connection, _) = HeardEvents(), connected(spec)
    connection.ask(heard, b"GET / HTTP/1.1\r\n\r\n", head_only=head_only)
    for data in reads:
        if not connection.ended:
            connection.data_received(data)
    if eof:
        connection.eof_received()
        connection.connection_lost(None)
    return heard, connection


LENGTH_2 = (200, [(b"content-length", b"2")], 2)
CODED = (200, [(b"transfer-encoding", b"chunked")], None)
ANSWERS = [
    (OK + b"Content-Length: 2\r\n\r\nok", [LENGTH_2, b"ok", "end"], True),
    (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", [CODED, b"ok", "end"], True),
    # Trailers are read and left out: what they say was not in the head.
    (CHUNKED + b"2\r\nok\r\n0\r\na: b\r\n\r\n", [CODED, b"ok", "end"], True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", [(204, [], 0), "end"], True),
    (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n", [
        (304, [(b"content-length", b"2")], 0), "end",
    ], True),
    (b"HTTP/1.1 100 Continue\r\na: b\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok", [
        LENGTH_2, b"ok", "end",
    ], True),
    (OK + b"connection: close\r\ncontent-length: 0\r\n\r\n", [
        (200, [(b"connection", b"close"), (b"content-length", b"0")], 0), "end",
    ], False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", [LENGTH_2, b"ok", "end"], False),
    (b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", [CODED, "end"], False),
]  # fmt: skip


@pytest.mark.parametrize(("said", "events", "kept"), ANSWERS)
def test_answers_wherever_they_are_cut(said: bytes, events: list[Any], *, kept: bool) -> None:
    for reads in ([said], [said[at : at + 1] for at in range(len(said))]):
        heard, connection = asked(*reads)
        assert heard.joined == events
        assert connection.ended is not kept


MALFORMED = "answer-malformed"
TOO_LARGE = "answer-too-large"
REFUSED = [
    # What two readers could frame in two ways.
    (OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", MALFORMED),
    (OK + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n", MALFORMED),
    (OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok", MALFORMED),
    (OK + b"content-length: 2, 2\r\n\r\nok", MALFORMED),
    (OK + b"content-length: +2\r\n\r\nok", MALFORMED),
    (OK + b"content-length: 0x2\r\n\r\nok", MALFORMED),
    (OK + b"content-length : 2\r\n\r\nok", MALFORMED),
    (OK + b"content-length:\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 200 OK\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"content-length: 2\n\r\nok", MALFORMED),
    (OK + b"content-length: 2\r\n\nok", MALFORMED),
    (OK + b"a: b\r\n folded\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"a: b\rc: d\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"a: b\0c\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"transfer-encoding: gzip\r\n\r\nok", MALFORMED),
    (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", MALFORMED),
    (OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", MALFORMED),
    # What is no answer to what was asked.
    (b"hello\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 099 Strange\r\n\r\n", MALFORMED),
    (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", MALFORMED),
    # What has no end.
    (OK + b"a: " + b"b" * 200, MALFORMED),
    (OK + b"a: " + b"b" * 200 + b"\r\ncontent-length: 2\r\n\r\nok", MALFORMED),
    (OK + b"a: b\r\n" * 4 + b"content-length: 2\r\n\r\nok", MALFORMED),
    (b"HTTP/1.1 102 Processing\r\n\r\n" * 8, MALFORMED),
]  # fmt: skip


@pytest.mark.parametrize(("said", "reason"), REFUSED)
def test_what_is_refused_before_anything_of_it_is_believed(said: bytes, reason: str) -> None:
    for reads in ([said], [said[at : at + 1] for at in range(len(said))]):
        heard, connection = asked(*reads)
        assert heard.events == [reason]
        assert connection.ended


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (CHUNKED + b"1\nx\r\n0\r\n\r\n", MALFORMED),
        (CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n", MALFORMED),
        (CHUNKED + b"1 \r\nx\r\n0\r\n\r\n", MALFORMED),
        (CHUNKED + b"1\r\nx\n0\r\n\r\n", MALFORMED),
        (CHUNKED + b"1\r\nx\r\n0\r\ncontent-length: 9\r\n\r\n", MALFORMED),
        (CHUNKED + b"b\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n", TOO_LARGE),
    ],
)
def test_a_body_that_is_refused_after_its_head(said: bytes, reason: str) -> None:
    heard, connection = asked(said)
    assert heard.joined[0] == CODED
    assert heard.events[-1] == reason
    assert "end" not in heard.events
    assert connection.ended


def test_a_length_that_is_too_large_is_refused_before_its_body() -> None:
    heard, _ = asked(OK + b"content-length: 11\r\n\r\n")
    assert heard.events == [TOO_LARGE]


@pytest.mark.parametrize("endless", [b"1;", b"0\r\ntrailer: "])
def test_a_chunks_extension_and_a_trailer_have_an_end(endless: bytes) -> None:
    heard, _ = asked(CHUNKED, endless, b"x" * 150, b"x" * 150)
    assert heard.events == [CODED, MALFORMED]


@pytest.mark.parametrize("length", [b"", b"connection: keep-alive\r\n"])
def test_the_end_of_the_connection_ends_a_body_without_length(length: bytes) -> None:
    heard, connection = asked(b"HTTP/1.0 200 OK\r\n" + length + b"\r\no", b"k", eof=True)
    assert heard.joined[1:] == [b"ok", "end"]
    assert connection.ended


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200",
        OK + b"content-length: 9\r\n\r\nhello",
        CHUNKED + b"2\r\nok\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_lost(said: bytes) -> None:
    heard, _ = asked(*([said] if said else []), eof=True)
    assert heard.events[-1] == "connection-lost"


def test_a_body_that_would_end_with_the_connection_is_not_ended_by_a_reset_or_by_us() -> None:
    heard, connection = asked(b"HTTP/1.0 200 OK\r\n\r\nhalf")
    connection.abort()
    connection.connection_lost(None)
    assert heard.events[1:] == [b"half", "connection-lost"]


def test_an_answer_to_head_has_no_body_and_ends_the_connection() -> None:
    heard, connection = asked(OK + b"content-length: 9\r\n\r\n", head_only=True)
    assert heard.events == [(200, [(b"content-length", b"9")], 0), "end"]
    assert connection.ended  # the parser would take the next answer for this one's body


@pytest.mark.parametrize("more", [OK + b"content-length: 0\r\n\r\n", b"x", OK[:5]])
def test_a_second_answer_in_the_same_read_ends_the_connection_and_not_the_first(
    more: bytes,
) -> None:
    heard, connection = asked(OK + b"content-length: 2\r\n\r\nok" + more)
    assert heard.joined == [LENGTH_2, b"ok", "end"]
    assert connection.ended


def test_what_comes_while_nothing_is_asked_ends_the_connection() -> None:
    _, connection = asked(OK + b"content-length: 2\r\n\r\nok")
    assert not connection.ended
    connection.data_received(OK + b"content-length: 2\r\n\r\nno")
    assert connection.ended


def test_the_next_request_may_leave_from_the_end_of_the_answer() -> None:
    connection, transport = connected()
    heard = [HeardEvents(), HeardEvents()]

    class Asks(HeardEvents):
        def on_end(self) -> None:
            super().on_end()
            connection.ask(heard[1], b"two")

    heard[0] = Asks()
    connection.ask(heard[0], b"one")
    connection.data_received(OK + b"content-length: 2\r\n\r\nok")
    assert transport.sent == b"onetwo"
    assert (connection.used, connection.answered_bytes) == (1, 0)
    connection.data_received(OK + b"content-length: 2\r\n\r\nok")
    assert [one.joined for one in heard] == [[LENGTH_2, b"ok", "end"]] * 2


def test_reading_pauses_while_the_reader_is_behind_and_goes_on_for_the_next_answer() -> None:
    connection, transport = connected()
    connection.ask(HeardEvents(), b"one")
    connection.pause()
    connection.pause()
    connection.data_received(OK + b"content-length: 0\r\n\r\n")
    connection.resume()
    assert transport.did == ["pause", "resume"]


def test_who_drops_an_answer_hears_no_more_of_it() -> None:
    heard, connection = asked(OK + b"content-length: 2\r\n\r\no")
    connection.drop()
    connection.connection_lost(None)
    assert heard.events == [LENGTH_2, b"o"]


def test_a_connection_that_ended_says_so_to_who_asks() -> None:
    async def main() -> list[Any]:
        connection, _ = connected()
        connection.eof_received()
        heard = HeardEvents()
        connection.ask(heard, b"one")
        assert heard.events == []
        await asyncio.sleep(0)
        return heard.events

    assert asyncio.run(main()) == ["connection-lost"]


def test_a_reader_that_fails_ends_the_exchange(caplog: pytest.LogCaptureFixture) -> None:
    class FailingReader(HeardEvents):
        def on_body(self, data: bytes) -> None:
            raise RuntimeError("a bug")

    heard, (connection, _) = FailingReader(), connected()
    connection.ask(heard, b"one")
    connection.data_received(OK + b"content-length: 2\r\n\r\nok")
    assert heard.events == [LENGTH_2, MALFORMED]
    assert "a bug" in caplog.text


def whole(*reads: bytes, eof: bool = False) -> HttpAnswer | None:
    answers: list[HttpAnswer | None] = []
    connection, _ = connected()
    connection.ask(WholeAnswer(answers.append), b"one")
    for data in reads:
        connection.data_received(data)
    if eof:
        connection.eof_received()
        connection.connection_lost(None)
    (answer,) = answers
    return answer


def test_a_whole_answer() -> None:
    said = OK + b"A: 1\r\na: 2\r\ncontent-length: 2\r\n\r\n"
    told = HttpAnswer(200, {b"a": b"2", b"content-length": b"2"}, b"ok")
    assert whole(said + b"o", b"k") == told
    assert whole(said + b"o", eof=True) is None
    assert whole(b"hello\r\n") == HttpAnswer(502, {}, b"not HTTP: Expected HTTP/, RTSP/ or ICE/")
    much = HttpAnswer(502, {}, b"the answer is larger than 10 bytes")
    assert whole(OK + b"content-length: 11\r\n\r\n") == much


def test_no_value_ends_its_line() -> None:
    request = request_of("POST", "/a b", {"x": "1\r\ny: 2", "z": "\N{EURO SIGN}é"}, b"body")
    assert request == (
        b"POST /a b HTTP/1.1\r\nx: 1  y: 2\r\nz: ?\xe9\r\ncontent-length: 4\r\n\r\nbody"
    )
