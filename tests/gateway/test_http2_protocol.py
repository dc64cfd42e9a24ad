"""HTTP/2 connections of the gateway: windows, clients that do not read, timeouts, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hpack
import pytest
from tests.kit.gateway import run
from tests.kit.polling import until
from tests.wire.http2_bytes import START, data, frames_of, get, headers, post

from penstock.clock import ManualClock
from penstock.core.request.body_budget import SLOW_S, BodyBudget
from penstock.errors import CallerError
from penstock.gateway.http2 import connection as http2_connection
from penstock.gateway.http2 import listener as http2_listener
from penstock.gateway.http2.connection import Http2Protocol
from penstock.gateway.http2.exchange import STALL_S_MAX, Http2Carrier, Http2Exchange
from penstock.gateway.http2.listener import Http2Listener
from penstock.wire.http2 import frames
from penstock.wire.http2.events import RequestReceived
from penstock.wire.http2.spec import Http2Spec

pytestmark = pytest.mark.loop(by=run)

CONNECTIONS_MAX = 10
HEAD = ((b":status", b"200"),)
TRAILERS = ((b"done", b"yes"),)
UNAVAILABLE = ((b":status", b"503"),)


class Asked(Http2Exchange):
    """Notes what comes; the test answers."""

    def __init__(self, connection: Http2Carrier, stream: int) -> None:
        super().__init__(connection, stream)
        self.told: list[str] = []
        self.body = b""
        self.bug = ""  #: the method that fails
        self.checked = 0

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        self.body += data
        self.acknowledge(flow_bytes)

    def on_complete(self) -> None:
        self.told.append("complete")

    def on_gone(self) -> None:
        self.told.append("gone")
        assert self.bug != "on_gone"

    def on_written(self) -> None:
        self.told.append("written")
        assert self.bug != "on_written"

    def on_room(self) -> None:
        self.told.append("room")
        assert self.bug != "on_room"

    def on_drain_over(self) -> None:
        assert self.bug != "on_drain_over"
        self.finish(UNAVAILABLE)

    def check(self, now: float) -> None:
        assert self.bug != "check"
        self.checked += 1

    def refuse_for_room(self) -> None:
        self.told.append("refused")
        assert self.bug != "refuse_for_room"
        self.reset()


@dataclass
class Site:
    listener: Http2Listener
    clock: ManualClock
    port: int
    asked: list[Asked] = field(default_factory=list)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    clock = ManualClock()
    asked: list[Asked] = []

    def door(connection: Http2Carrier, request: RequestReceived) -> Http2Exchange:
        asked.append(Asked(connection, request.stream))
        return asked[-1]

    listener = Http2Listener(
        door, clock, BodyBudget(1 << 20), spec=Http2Spec(), connections_max=CONNECTIONS_MAX,
        head_timeout_s=5.0, tick_s=0.01,
    )  # fmt: skip
    port = await listener.start("127.0.0.1", 0, tls=None, reuse_port=False)
    try:
        yield Site(listener, clock, port, asked)
    finally:
        await listener.stop(0.0)


class Client:
    """Sends bytes; reads frames only when asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, served: Site, *sent: bytes) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", served.port, limit=1 << 16))
        client.writer.write(b"".join(sent))
        return client

    async def frame(self, kind: int) -> tuple[int, int, bytes]:
        """Flags, stream and payload of the next frame of a kind."""
        async with asyncio.timeout(10):
            while True:
                head = await self.reader.readexactly(frames.HEAD_BYTES)
                rest = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                [(found, flags, stream, payload)] = frames_of(head + rest)
                if found == kind:
                    return flags, stream, payload

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            while await self.reader.read(1 << 16):
                pass


async def test_a_request_is_over_when_its_last_byte_has_left() -> None:
    async with site() as served:
        client = await Client.of(served, START, post(1), data(1, b"hel"), data(1, b"lo", end=True))
        await until(lambda: served.asked and served.asked[0].told)
        [asked] = served.asked
        assert (asked.body, asked.told) == (b"hello", ["complete"])
        asked.send_head(HEAD)
        asked.send(b"answer")
        asked.end(TRAILERS)
        assert (await client.frame(frames.DATA))[2] == b"answer"
        assert (await client.frame(frames.HEADERS))[0] & frames.END_STREAM
        assert asked.told == ["complete", "written"]


async def test_what_the_windows_do_not_take_leaves_when_they_open() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1))
        await until(lambda: served.asked)
        [asked] = served.asked
        whole = bytes(range(256)) * 1024
        asked.send_head(HEAD)
        asked.send(whole)
        asked.send(b"last")
        asked.end(TRAILERS)
        assert asked.waiting_bytes == len(whole) + 4 - 65_535
        got = b""
        while len(got) < len(whole) + 4:
            piece = (await client.frame(frames.DATA))[2]
            got += piece
            for stream in (0, 1):
                client.writer.write(frames.window_update(stream, len(piece)))
        assert got == whole + b"last"
        await until(lambda: asked.told == ["complete", "written"])


async def test_a_client_that_resets_is_gone_and_what_waits_for_it_is_dropped() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1), get(3))
        await until(lambda: len(served.asked) == 2)
        first, second = served.asked
        first.send_head(HEAD)
        first.send(b"x" * 100_000)
        client.writer.write(frames.rst_stream(1, frames.CANCEL))
        await until(lambda: first.told == ["complete", "gone"])
        second.finish(HEAD)
        await until(lambda: second.told == ["complete", "written"])
        client.writer.close()


async def test_an_answer_that_the_client_does_not_take_ends_its_stream_alone() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1), get(3))
        await until(lambda: len(served.asked) == 2)
        first, second = served.asked
        first.send_head(HEAD)
        first.send(b"x" * 100_000)
        served.clock.advance(STALL_S_MAX)
        await until(lambda: first.told == ["complete", "gone"])
        _, stream, _ = await client.frame(frames.RST_STREAM)
        assert stream == 1
        second.finish(HEAD)
        await until(lambda: second.told == ["complete", "written"])


async def test_who_asks_and_does_not_read_is_cut_off() -> None:
    async with site() as served:
        huge = frames.window_update(0, 1 << 30)
        client = await Client.of(served, START, huge, get(1), get(3))
        await until(lambda: len(served.asked) == 2)
        client.writer.write(frames.window_update(1, 1 << 30))
        first, second = served.asked
        first.send_head(HEAD)
        [connection] = served.listener.connections
        while connection.unread_bytes <= 1 << 20:
            first.send(b"x" * (1 << 20))
            await asyncio.sleep(0)
        second.finish(HEAD)  # waits for the socket, and keeps its stream
        assert second.waits
        served.clock.advance(STALL_S_MAX)
        await until(lambda: "gone" in first.told and "gone" in second.told)
        await client.ended()


async def test_a_preface_must_come_in_time_and_an_idle_connection_ends() -> None:
    async with site() as served:
        late = await Client.of(served, START[:10])
        idle = await Client.of(served, START)
        await until(lambda: len(served.listener.connections) == 2)
        await idle.frame(frames.SETTINGS)
        await idle.frame(frames.SETTINGS)  # the answer to its own
        served.clock.advance(5.0)
        await late.ended()
        assert len(served.listener.connections) == 1
        served.clock.advance(http2_connection.IDLE_S_MAX)
        await idle.frame(frames.GOAWAY)
        await idle.ended()


async def test_a_client_with_open_streams_must_show_that_it_lives() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1))
        await until(lambda: served.asked)
        served.clock.advance(http2_connection.PING_AFTER_S)
        _, _, payload = await client.frame(frames.PING)
        served.clock.advance(1.0)
        client.writer.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        await until(lambda: next(iter(served.listener.connections)).received > 60.0)  # type: ignore[attr-defined]
        served.clock.advance(http2_connection.PING_AFTER_S)
        await client.frame(frames.PING)
        served.clock.advance(http2_connection.PING_S_MAX)
        await until(lambda: served.asked[0].told == ["complete", "gone"])


async def test_a_drain_lets_open_requests_end_and_then_cuts_them() -> None:
    async with site() as served:
        ready = await Client.of(served, START, get(1))
        stuck = await Client.of(served, START, get(1))
        await until(lambda: len(served.asked) == 2)
        stopping = asyncio.ensure_future(served.listener.stop(0.3))
        for client in (ready, stuck):
            await client.frame(frames.GOAWAY)
        served.asked[0].finish(HEAD)
        for client in (ready, stuck):
            _, _, payload = await client.frame(frames.PING)
            client.writer.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        await stopping
        assert [asked.told for asked in served.asked] == [["complete", "written"]] * 2
        await ready.ended()
        assert (await stuck.frame(frames.HEADERS))[0] & frames.END_STREAM
        await stuck.ended()
        with pytest.raises(ConnectionRefusedError):
            await Client.of(served)


async def test_a_client_too_many_is_told_to_go_away() -> None:
    async with site() as served:
        crowd = [await Client.of(served, START) for _ in range(CONNECTIONS_MAX)]
        await until(lambda: len(served.listener.connections) == CONNECTIONS_MAX)
        late = await Client.of(served, START, get(1))
        _, _, payload = await late.frame(frames.GOAWAY)
        assert int.from_bytes(payload[4:8], "big") == frames.ENHANCE_YOUR_CALM
        await late.ended()
        assert not served.asked
        for client in crowd:
            client.writer.close()


async def test_a_request_that_is_answered_at_once_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Asked.__init__

    def refuse(self: Asked, connection: Http2Carrier, stream: int) -> None:
        made(self, connection, stream)
        self.finish(UNAVAILABLE)

    monkeypatch.setattr(Asked, "__init__", refuse)
    async with site() as served:
        client = await Client.of(served, START, get(1))
        assert (await client.frame(frames.HEADERS))[0] & frames.END_STREAM
        await until(lambda: served.asked[0].told)
        assert served.asked[0].told == ["written"]


async def test_trailers_complete_a_request() -> None:
    async with site() as served:
        trailers = headers(1, [(b"x", b"y")])
        client = await Client.of(served, START, post(1), data(1, b"body"), trailers)
        await until(lambda: served.asked and served.asked[0].told)
        assert (served.asked[0].body, served.asked[0].told) == (b"body", ["complete"])
        client.writer.close()


async def test_an_answer_whose_last_bytes_never_leave_is_over_all_the_same() -> None:
    """The client leaves without having read them."""
    async with site() as served:
        windows = frames.frame(frames.SETTINGS, 0, 0, b"\0\4" + (1 << 30).to_bytes(4))
        client = await Client.of(served, START, windows, frames.window_update(0, 1 << 30), get(1))
        await until(lambda: served.asked)
        [asked] = served.asked
        [connection] = served.listener.connections
        asked.send_head(HEAD)
        asked.send(b"x" * (16 << 20))
        asked.end(TRAILERS)
        await until(lambda: connection.unread_bytes > 1 << 20)
        assert asked.told == ["complete"]
        client.writer.transport.abort()
        await until(lambda: asked.told == ["complete", "written"])


async def test_a_connection_is_idle_from_its_last_request_on() -> None:
    async with site() as served:
        client = await Client.of(served, START)
        await client.frame(frames.SETTINGS)
        [connection] = served.listener.connections
        served.clock.advance(http2_connection.IDLE_S_MAX - 1)
        client.writer.write(get(1))
        await until(lambda: served.asked)
        served.asked[0].finish(HEAD)
        served.clock.advance(http2_connection.IDLE_S_MAX - 1)
        connection.check(served.clock.monotonic())
        client.writer.write(get(3))
        await until(lambda: len(served.asked) == 2)
        served.asked[1].finish(HEAD)
        served.clock.advance(http2_connection.IDLE_S_MAX)
        await client.ended()
        assert connection not in served.listener.connections


async def test_a_client_has_time_to_show_that_it_lives() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1))
        await until(lambda: served.asked)
        served.clock.advance(http2_connection.PING_AFTER_S)
        await client.frame(frames.PING)
        served.clock.advance(http2_connection.PING_S_MAX - 1)
        checked = served.asked[0].checked
        await until(lambda: served.asked[0].checked > checked + 1)
        assert served.asked[0].told == ["complete"]


async def test_a_drain_takes_no_longer_than_its_requests_and_keeps_new_clients_out() -> None:
    async with site() as served:
        client = await Client.of(served, START, get(1))
        await until(lambda: served.asked)
        [connection] = served.listener.connections
        stopping = asyncio.ensure_future(served.listener.stop(60.0))
        await client.frame(frames.GOAWAY)
        assert not served.listener.admit(connection)
        _, _, payload = await client.frame(frames.PING)
        client.writer.write(frames.frame(frames.PING, frames.ACK, 0, payload))
        served.asked[0].finish(HEAD)
        _, _, block = await client.frame(frames.HEADERS)
        assert hpack.Decoder().decode(block) == [(":status", "200")]
        await asyncio.wait_for(stopping, 10)


async def test_a_server_that_stops_does_not_wait_for_who_reads_nothing() -> None:
    async with site() as served:
        client = await Client.of(
            served, START, frames.window_update(0, 1 << 30), get(1),
            frames.window_update(1, 1 << 30),
        )  # fmt: skip
        await until(lambda: served.asked)
        [asked] = served.asked
        asked.send_head(HEAD)
        [connection] = served.listener.connections
        while connection.unread_bytes <= 1 << 20:
            asked.send(b"x" * (1 << 20))
            await asyncio.sleep(0)
        await served.listener.stop(0.0)
        assert asked.told == ["complete", "gone"]
        assert not served.listener.connections
        client.writer.close()


@pytest.mark.parametrize(("bytes_max", "cut"), [(9, []), (8, [1]), (4, [1]), (3, [1, 2])])
async def test_of_all_unread_answers_the_largest_are_cut_beyond_the_bound(
    bytes_max: int, cut: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site() as served:
        clients = [await Client.of(served, START, get(1)) for _ in range(3)]
        await until(lambda: len(served.asked) == 3)
        unread = {
            asked.connection: size for asked, size in zip(served.asked, (1, 5, 3), strict=True)
        }
        monkeypatch.setattr(Http2Protocol, "unread_bytes", property(lambda self: unread[self]))
        monkeypatch.setattr(http2_listener, "UNREAD_BYTES_MAX", bytes_max)
        for index in cut:
            await clients[index].ended()
        checked = served.asked[0].checked
        await until(lambda: served.asked[0].checked > checked + 1)
        assert [i for i, asked in enumerate(served.asked) if "gone" in asked.told] == cut


async def test_a_port_in_use_is_said_so() -> None:
    async with site() as served:
        other = Http2Listener(
            lambda *_: pytest.fail("nobody asks"), ManualClock(), BodyBudget(1), spec=Http2Spec(),
            connections_max=1, head_timeout_s=1.0, tick_s=1.0,
        )  # fmt: skip
        with pytest.raises(CallerError, match="listens on"):
            await other.start("127.0.0.1", served.port, tls=None, reuse_port=False)


async def test_a_bug_with_a_body_ends_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as served:
        monkeypatch.setattr(Asked, "on_data", lambda *_: 1 / 0)
        client = await Client.of(served, START, get(1), post(3), data(3, b"x"))
        assert (await client.frame(frames.RST_STREAM))[1] == 3
        served.asked[0].finish(HEAD)
        assert (await client.frame(frames.HEADERS))[1] == 1


@asynccontextmanager
async def two_requests(bug: str) -> AsyncIterator[tuple[Site, Client, Asked, Asked]]:
    """Of one connection: the first request's method `bug` fails."""
    async with site() as served:
        client = await Client.of(served, START, get(1), get(3))
        await until(lambda: len(served.asked) == 2)
        first, second = served.asked
        first.bug = bug
        yield served, client, first, second
        client.writer.close()


async def test_a_bug_in_a_check_ends_its_own_stream() -> None:
    async with two_requests("check") as (_, client, first, second):
        assert (await client.frame(frames.RST_STREAM))[1] == 1
        assert first.told == ["complete", "gone"]
        checked = second.checked
        await until(lambda: second.checked > checked)
        second.finish(HEAD)
        assert (await client.frame(frames.HEADERS))[1] == 3


async def test_a_bug_after_an_answer_keeps_no_other_from_being_over() -> None:
    async with two_requests("on_written") as (_, client, first, second):
        first.finish(HEAD)
        second.finish(HEAD)
        await until(lambda: second.told == ["complete", "written"])
        assert first.told == ["complete", "written"]
        client.writer.write(get(5))
        assert [(await client.frame(frames.HEADERS))[1] for _ in range(2)] == [1, 3]


async def test_a_bug_after_a_client_has_gone_keeps_no_other_from_being_over() -> None:
    async with two_requests("on_gone") as (served, client, first, second):
        client.writer.close()
        await until(lambda: second.told == ["complete", "gone"])
        assert first.told == ["complete", "gone"]
        await until(lambda: not served.listener.connections)


async def test_a_bug_after_a_reset_leaves_the_connection_as_it_is() -> None:
    async with two_requests("on_gone") as (_, client, first, second):
        client.writer.write(frames.rst_stream(1, frames.CANCEL))
        await until(lambda: first.told == ["complete", "gone"])
        second.finish(HEAD)
        assert (await client.frame(frames.HEADERS))[1] == 3


async def test_a_bug_where_an_answer_goes_on_ends_its_own_stream() -> None:
    """The socket had no room, and two answers wait for it."""
    async with two_requests("on_room") as (served, _, first, second):
        [connection] = served.listener.connections
        assert isinstance(connection, Http2Protocol)
        connection.pause_writing()
        for asked in (first, second):
            asked.send_head(HEAD)
            asked.send(b"x")
        connection.resume_writing()
        assert first.told == ["complete", "room", "gone"]
        assert second.told == ["complete", "room"]


async def test_a_bug_at_the_end_of_a_drain_keeps_no_other_from_its_answer() -> None:
    async with two_requests("on_drain_over") as (served, _, first, second):
        await served.listener.stop(0.0)
        assert first.told == ["complete", "gone"]
        assert second.told == ["complete", "written"]


async def test_a_bug_in_a_refusal_for_room_costs_only_its_own_request() -> None:
    async with two_requests("refuse_for_room") as (served, _, first, second):
        listener = served.listener
        half = listener.bodies.bytes_max // 2
        assert listener.take(first, half)
        listener.unfinished(first, half)
        served.clock.advance(SLOW_S)
        assert not listener.take(second, 1)
        assert first.told == ["complete", "refused"]
        assert not listener.take(second, 1)
        assert first.told == ["complete", "refused"]  # it isn't chosen again


@pytest.mark.parametrize("broken", ["check", "flush", "unread_bytes"])
async def test_a_connection_that_fails_is_cut_and_the_others_are_served(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site() as served:
        clients = [await Client.of(served, START, get(1)) for _ in range(3)]
        await until(lambda: len(served.asked) == 3)
        bad = served.asked[1].connection

        def fail(connection: Http2Protocol, *given: float) -> Any:
            assert connection is not bad
            return sound(connection, *given)

        sound = getattr(Http2Protocol, broken)
        if isinstance(sound, property):
            sound = sound.__get__
            monkeypatch.setattr(Http2Protocol, broken, property(fail))
        else:
            monkeypatch.setattr(Http2Protocol, broken, fail)
        for asked in served.asked:
            asked.send_head(HEAD)
        await clients[1].ended()
        for index in (0, 2):
            checked = served.asked[index].checked
            await until(lambda i=index, n=checked: served.asked[i].checked > n)  # type: ignore[misc]
            await clients[index].frame(frames.HEADERS)
        assert len(served.listener.connections) == 2


async def test_a_connection_that_can_not_even_be_cut_keeps_nobody_from_being_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site() as served:
        clients = [await Client.of(served, START, get(1)) for _ in range(3)]
        await until(lambda: len(served.asked) == 3)
        monkeypatch.setattr(http2_listener, "UNREAD_BYTES_MAX", 0)
        bad = served.asked[1].connection
        size = property(lambda connection: 2 if connection is bad else 1)
        monkeypatch.setattr(Http2Protocol, "unread_bytes", size)
        sound = Http2Protocol.abort

        def abort(connection: Http2Protocol) -> None:
            assert connection is not bad
            sound(connection)

        monkeypatch.setattr(Http2Protocol, "abort", abort)
        for index in (0, 2):
            await clients[index].ended()
        checked = served.asked[1].checked
        await until(lambda: served.asked[1].checked > checked)
