"""Answers in pieces on real sockets: when bytes leave, in which order, and who is cut off."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.http_site import HttpSite, site
from tests.kit.gateway import run
from tests.kit.http_clients import RawClient, post
from tests.kit.polling import until

from penstock.gateway.dispatch.invocation import STREAMING
from penstock.gateway.http import answer_pipeline as pipeline
from penstock.gateway.http.call import Call, status_line

pytestmark = pytest.mark.loop(by=run)

HEAD = status_line(200) + b"content-type: text/event-stream\r\n"


async def begun(served: HttpSite, client: RawClient, request: bytes = b"") -> Call:
    """A request whose answer the test gives piece by piece."""
    before = len(served.door.waiting)
    client.write(request or post("/hot/later"))
    await until(lambda: len(served.door.waiting) > before)
    return served.door.waiting[-1]


def written(served: HttpSite) -> list[bytes]:
    """What the one connection gives to its transport from now on, write by write."""
    [connection] = served.listener.connections
    inner, seen = connection._write, []

    def write(data: bytes) -> None:
        seen.append(data)
        inner(data)

    connection._write = write
    return seen


async def test_pieces_of_one_turn_of_the_loop_leave_in_one_write_with_the_head() -> None:
    async with site() as served:
        call = await begun(served, await served.client())
        writes = written(served)
        call.start(HEAD)
        call.send(b"one")
        call.send(b"two")
        assert writes == []
        await until(lambda: writes)
        [first] = writes
        assert first.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        assert first.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n")
        call.send(b"three")
        call.finish()
        assert writes[1:] == [b"5\r\nthree\r\n0\r\n\r\n"]


async def test_a_piece_does_not_wait_for_the_next() -> None:
    async with site() as served:
        client = await served.client()
        call = await begun(served, client)
        call.start(HEAD)
        for piece in (b"a", b"b"):
            call.send(piece)
            await client.reader.readuntil(b"1\r\n" + piece + b"\r\n")
        call.finish()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"


async def test_a_connection_goes_on_behind_a_stream_and_answers_stay_in_order() -> None:
    async with site() as served:
        client = await served.client()
        first = await begun(served, client)
        second = await begun(served, client)
        client.write(post("/hot/x", b"third"))
        second.start(HEAD)
        second.send(b"second")
        first.start(HEAD)
        first.send(b"fir")
        second.finish()
        first.send(b"st")
        first.finish()
        bodies = [(await client.answer())[2] for _ in range(3)]
        assert bodies == [b"first", b"second", b"third"]
        assert (await client.ask(post("/hot/x", b"still open")))[2] == b"still open"


async def test_a_client_of_http_1_0_reads_pieces_until_the_connection_ends() -> None:
    async with site() as served:
        for line in (b"", b"Connection: keep-alive\r\n"):
            client = await served.client()
            request = b"GET /hot/later HTTP/1.0\r\n" + line + b"\r\n"
            call = await begun(served, client, request)
            call.start(HEAD)
            call.send(b"one ")
            call.send(b"two")
            call.finish()
            head, _, body = (await client.closed()).partition(b"\r\n\r\n")
            assert b"connection: close" in head
            assert b"transfer-encoding" not in head
            assert body == b"one two"


async def test_a_client_that_leaves_a_stream_is_told_of_and_nothing_more_is_written() -> None:
    async with site() as served:
        client = await served.client()
        call = await begun(served, client)
        call.start(HEAD)
        call.send(b"one")
        await client.reader.readuntil(b"one\r\n")
        client.close()
        await until(lambda: served.door.abandoned_urls == [b"/hot/later"])
        call.send(b"two")
        call.finish()
        assert call.connection is None
        assert served.door.written_urls == []


async def stalled(served: HttpSite, unread_bytes: int) -> tuple[Any, Call, RawClient]:
    """A stream of which about `unread_bytes` wait for a client that does not read."""
    client = await served.client(limit=2**16)
    call = await begun(served, client)
    call.start(HEAD)
    [connection] = served.listener.connections
    while connection.unread_bytes < unread_bytes:
        assert call.connection is not None
        call.send(b"x" * 65_536)
        connection.flush()
    return connection, call, client


async def test_who_leaves_much_unread_is_cut_off_once_nothing_of_it_is_taken() -> None:
    async with site() as served:
        connection, call, client = await stalled(served, pipeline.UNREAD_BYTES_STALLED + 1)
        connection.check(connection._paused_since + pipeline.UNREAD_STALL_S_MAX - 0.1)
        before = connection.unread_bytes
        while connection.unread_bytes == before:
            await client.reader.read(2**16)  # slow, but alive
        connection.check(connection._paused_since + pipeline.UNREAD_STALL_S_MAX)
        assert call.connection is not None
        call.send(b"x" * 4_000_000)
        connection.flush()
        connection.check(connection._paused_since + pipeline.UNREAD_STALL_S_MAX)
        await until(lambda: served.door.abandoned_urls == [b"/hot/later"])


class PacedLink:
    def __init__(self) -> None:
        self.told: list[bool] = []

    def pace(self, invocation: Any, *, waits: bool) -> None:
        self.told.append(waits)


async def paced(served: HttpSite) -> tuple[Any, Call, RawClient]:
    """A stream whose producer was asked to wait, because its client does not read."""
    client = await served.client(limit=2**16)
    call = await begun(served, client)
    call.state, call.link = STREAMING, PacedLink()
    call.start(HEAD)
    [connection] = served.listener.connections
    while connection.unread_bytes <= pipeline.UNREAD_BYTES_PACED:
        assert call.link.told == []
        call.send(b"x" * 65_536)
        connection.flush()
    assert call.link.told == [True]
    return connection, call, client


async def test_the_producer_of_a_client_that_falls_behind_waits_until_it_has_read() -> None:
    async with site() as served:
        connection, call, client = await paced(served)
        connection.check(connection._paused_since + pipeline.PACED_STALL_S_MAX - 0.1)
        while connection.unread_bytes:
            await client.reader.read(2**16)
        assert call.link.told == [True, False]


async def test_who_reads_nothing_while_a_producer_waits_is_cut_off() -> None:
    async with site() as served:
        connection, _, _ = await paced(served)
        connection.check(connection._paused_since + pipeline.PACED_STALL_S_MAX)
        await until(lambda: served.door.abandoned_urls == [b"/hot/later"])


async def test_no_stream_keeps_more_than_a_bound_for_a_client_that_does_not_read() -> None:
    async with site() as served:
        connection, call, _ = await stalled(served, 1)
        most = 0
        while call.connection is not None and most < 2 * pipeline.UNREAD_BYTES_MAX:
            call.send(b"x" * 65_536)
            connection.flush()
            most = max(most, connection.unread_bytes)
            if connection._transport.is_closing():
                break
        assert most <= pipeline.UNREAD_BYTES_MAX + 2 * 65_536
        await until(lambda: served.door.abandoned_urls == [b"/hot/later"])


async def test_all_clients_together_may_not_leave_more_than_a_bound_unread(
    monkeypatch: Any,
) -> None:
    async with site() as served:
        monkeypatch.setattr("penstock.gateway.http.listener.UNREAD_BYTES_MAX", 5_000_000)
        clients = [await served.client(limit=2**16) for _ in range(3)]
        for size, client in zip((9, 1, 2), clients, strict=True):
            call = await begun(served, client)
            call.start(HEAD)
            call.send(b"x" * (8_000_000 + size * 500_000))
            call.connection.flush()  # type: ignore[union-attr]
        await until(lambda: any(each.unread_bytes for each in served.listener.connections))
        served.listener._bound_unread()
        await until(lambda: served.door.abandoned_urls)
        left = sum(each.unread_bytes for each in served.listener.connections)
        assert left <= 5_000_000
