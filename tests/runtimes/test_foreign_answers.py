"""What counts as the answer of a foreign server, byte for byte."""

from __future__ import annotations

import asyncio

import pytest

from penstock.runtimes.foreign.http_connection import ForeignHttpConnection, HttpAnswer


def answer_to(sent: bytes) -> HttpAnswer | None:
    """A server reads a request, sends `sent` and closes; what the connection makes of it."""

    async def talk() -> HttpAnswer | None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            connection = ForeignHttpConnection(server.sockets[0].getsockname()[1])
            await connection.open()
            answered: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()
            connection.send("POST", "/invocations", {}, b"", answered.set_result)
            return await asyncio.wait_for(answered, 10)

    return asyncio.run(talk())


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", 200, b"x"),
    ],
)
def test_answers_of_known_length_are_whole(sent: bytes, status: int, body: bytes) -> None:
    answer = answer_to(sent)
    assert answer is not None
    assert (answer.status, answer.body) == (status, body)


def test_the_end_of_the_connection_ends_an_answer_that_names_no_length() -> None:
    """Python's own http.server answers so: HTTP/1.0, no content-length."""
    answer = answer_to(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nhello")
    assert answer == HttpAnswer(200, {"content-type": "text/plain"}, b"hello")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_none(sent: bytes) -> None:
    """The request goes to another copy: this server may be dying."""
    assert answer_to(sent) is None


def test_what_is_not_http_is_the_servers_failure_and_not_tried_again() -> None:
    answer = answer_to(b"hello\r\n\r\n")
    assert answer is not None
    assert answer.status == 502
    assert answer.body.startswith(b"not HTTP")
