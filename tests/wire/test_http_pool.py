"""Kept connections: which are used again, when a request is sent again, and what ends them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit import certificates
from tests.kit.gateway import run
from tests.kit.polling import until

from penstock.clock import ManualClock
from penstock.wire.http_client import (
    UNREACHABLE,
    UNTRUSTED,
    HttpAnswer,
    HttpClientSpec,
    WholeAnswer,
    fetch,
    request_of,
)
from penstock.wire.http_pool import HttpPool

pytestmark = pytest.mark.loop(by=run)

REQUEST = request_of("GET", "/", {"host": "localhost"})
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class ScriptedServer:
    """Answers by its script, one request after the other on each connection."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[int] = []  #: the number of the connection of each
        self.connections = 0
        self.ended: set[int] = set()  #: connections that the client has ended
        self.answer: Callable[[int, asyncio.StreamWriter], Awaitable[None]] = self.ok

    async def ok(self, _request: int, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async def nothing(self, _request: int, _writer: asyncio.StreamWriter) -> None:
        return

    async def reset_second(self, request: int, writer: asyncio.StreamWriter) -> None:
        """As a server does that closed an idle connection just when it was used again."""
        if request == 2:
            writer.transport.abort()
        else:
            writer.write(OK)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests.append(number)
                await self.answer(len(self.requests), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended.add(number)
            writer.close()


class HeardReasons(WholeAnswer):
    """A whole answer, or why there is none."""

    def __init__(self) -> None:
        self.over: asyncio.Future[HttpAnswer | str | None] = (
            asyncio.get_running_loop().create_future()
        )
        super().__init__(self.over.set_result)

    def on_lost(self, reason: str, detail: str) -> None:
        self.over.set_result(reason)


def served(
    test: Callable[[ScriptedServer], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> None:
    async def main() -> None:
        server = ScriptedServer()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listening.sockets[0].getsockname()[1]
        async with listening:
            await test(server)

    run(main)


def spec_of(server: ScriptedServer, *, idle_max: int = 2) -> HttpClientSpec:
    return HttpClientSpec(
        host="127.0.0.1", port=server.port, connect_s_max=5.0, idle_max=idle_max, idle_s_max=10.0
    )


async def got(pool: HttpPool, *, repeatable: bool = True) -> HttpAnswer | str | None:
    heard = HeardReasons()
    pool.ask(heard, REQUEST, repeatable=repeatable)
    return await heard.over


ANSWER = HttpAnswer(200, {b"content-length": b"2"}, b"ok")


def test_a_connection_is_kept_for_the_next_request() -> None:
    async def test(server: ScriptedServer) -> None:
        pool = HttpPool(spec_of(server), ManualClock())
        assert [await got(pool) for _ in range(3)] == [ANSWER] * 3
        assert server.requests == [1, 1, 1]
        await pool.close()

    served(test)


def test_what_may_not_be_computed_twice_goes_over_a_new_connection() -> None:
    async def test(server: ScriptedServer) -> None:
        pool = HttpPool(spec_of(server), ManualClock())
        assert await got(pool) == ANSWER
        assert await got(pool, repeatable=False) == ANSWER
        assert server.requests == [1, 2]
        await pool.close()

    served(test)


def test_a_stale_connection_costs_a_repeatable_request_nothing() -> None:
    async def test(server: ScriptedServer) -> None:
        server.answer = server.reset_second
        pool = HttpPool(spec_of(server), ManualClock())
        assert [await got(pool), await got(pool)] == [ANSWER, ANSWER]
        assert server.requests == [1, 1, 2]
        await pool.close()

    served(test)


def test_a_new_connection_that_breaks_is_lost_and_nothing_is_sent_again() -> None:
    async def test(server: ScriptedServer) -> None:
        server.requests = [0]  # so that the first is the second
        server.answer = server.reset_second
        pool = HttpPool(spec_of(server), ManualClock())
        assert await got(pool) == "connection-lost"
        assert server.requests == [0, 1]

    served(test)


def test_as_many_as_are_wanted_are_kept_and_none_for_long() -> None:
    async def test(server: ScriptedServer) -> None:
        clock = ManualClock()
        pool = HttpPool(spec_of(server, idle_max=2), clock)
        assert await asyncio.gather(*(got(pool) for _ in range(4))) == [ANSWER] * 4
        await until(lambda: len(server.ended) == 2)
        clock.advance(10.5)
        assert await got(pool) == ANSWER  # the last used is used again, and is young now
        pool.tidy()
        await until(lambda: len(server.ended) == 3)
        assert await got(pool) == ANSWER
        assert server.connections == 4
        await pool.close()
        await until(lambda: len(server.ended) == 4)

    served(test)


def test_who_cancels_ends_the_request_at_the_server_too() -> None:
    async def test(server: ScriptedServer) -> None:
        server.answer = server.nothing
        pool = HttpPool(spec_of(server), ManualClock())
        exchange = pool.ask(HeardReasons(), REQUEST)
        await until(lambda: server.requests)
        exchange.cancel()
        exchange.cancel()
        await until(lambda: server.ended)

    served(test)


def test_who_cancels_before_it_is_connected_leaves_the_connection_to_the_next() -> None:
    async def test(server: ScriptedServer) -> None:
        pool = HttpPool(spec_of(server), ManualClock())
        pool.ask(HeardReasons(), REQUEST).cancel()
        await until(lambda: server.connections)
        assert await got(pool) == ANSWER
        assert (server.requests, server.connections) == ([1], 1)
        await pool.close()

    served(test)


def test_who_cancels_before_it_is_connected_opens_none_that_no_other_could_use() -> None:
    async def test(server: ScriptedServer) -> None:
        pool = HttpPool(spec_of(server, idle_max=0), ManualClock())
        pool.ask(HeardReasons(), REQUEST).cancel()
        assert await got(pool) == ANSWER
        assert (server.requests, server.connections) == ([1], 1)
        await until(lambda: server.ended)  # nothing is kept

    served(test)


def test_an_answer_is_not_read_until_whoever_paused_it_before_it_was_connected_goes_on() -> None:
    async def test(server: ScriptedServer) -> None:
        pool = HttpPool(spec_of(server), ManualClock())
        heard = HeardReasons()
        exchange = pool.ask(heard, REQUEST)
        exchange.pause()
        await until(lambda: server.requests)
        assert await got(pool) == ANSWER  # over another, and later
        assert not heard.over.done()
        exchange.resume()
        assert await heard.over == ANSWER
        await pool.close()

    served(test)


def test_where_nobody_listens_it_is_unreachable() -> None:
    async def test(server: ScriptedServer) -> None:
        spec = HttpClientSpec(path=f"/nowhere/{server.port}")
        assert await got(HttpPool(spec, ManualClock())) == UNREACHABLE

    served(test)


def test_a_certificate_that_nobody_vouches_for_is_told_apart(tmp_path: Path) -> None:
    own, authority = certificates.make(tmp_path)

    async def test(server: ScriptedServer) -> None:
        for cafile, heard in ((None, UNTRUSTED), (authority, ANSWER)):
            spec = replace(spec_of(server), tls=ssl.create_default_context(cafile=cafile))
            pool = HttpPool(spec, ManualClock())
            assert await got(pool) == heard
            await pool.close()

    served(test, tls=own)


async def test_one_request_over_a_unix_socket(tmp_path: Path) -> None:
    server, path = ScriptedServer(), str(tmp_path / "socket")
    async with await asyncio.start_unix_server(server.serve, path):
        assert await fetch(HttpClientSpec(path=path), REQUEST, timeout_s=5.0) == ANSWER
        await until(lambda: server.ended)
