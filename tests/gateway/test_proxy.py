"""Handing a request on to the control plane's process, and its answer back."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.kit.gateway import PREFIX, run
from tests.kit.http_clients import RawClient
from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.gateway.http.asgi import REQUEST_ID_HEADER, AsgiDoor
from penstock.gateway.http.listener import HttpListener
from penstock.gateway.http.proxy import ProxyApp
from penstock.gateway.request_id import RequestIds

pytestmark = pytest.mark.loop(by=run)


class Control:
    """The control plane's end: what it was asked, and pieces that it gives when told to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.more = asyncio.Event()
        self.left = asyncio.Event()

    def app(self) -> Any:
        methods = ["GET", "POST", "DELETE", "HEAD"]
        return Starlette(
            routes=[
                Route("/pieces", self.pieces, methods=methods),
                Route("/nothing", self.nothing, methods=methods),
                Route("/broken", self.broken, methods=methods),
                Route("/{path:path}", self.echo, methods=methods),
            ]
        )

    async def echo(self, request: Request) -> Response:
        body = await request.body()
        told = {
            "method": request.method,
            "target": request.scope["raw_path"].decode(),
            "query": request.scope["query_string"].decode(),
            "headers": dict(request.headers),
            "bytes": len(body),
            "request_id": request.scope["penstock.request_id"],
        }
        self.asked.append(told)
        return JSONResponse(told, status_code=207, headers={"x-own": "yes"})

    async def nothing(self, _request: Request) -> Response:
        return Response(status_code=204)

    async def pieces(self, request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await self.more.wait()
                yield b"two"
            finally:
                self.left.set()

        return StreamingResponse(body())

    async def broken(self, _request: Request) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b"one"
            raise RuntimeError("no more")

        return StreamingResponse(body())


def listener(app: Any, prefix: str, *, handed_on: bool = False) -> HttpListener:
    return HttpListener(
        limits=LimitConfig(),
        clock=SystemClock(),
        ids=RequestIds(prefix),
        doors=(),
        fallback=AsgiDoor(app, handed_on=handed_on),
    )


@asynccontextmanager
async def site(*, control: bool = True) -> AsyncIterator[tuple[RawClient, Control]]:
    """A client of a gateway that has no door of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "control.sock")
        there = Control()
        inner = listener(there.app(), "11111111-1111-4111-8111-", handed_on=True)
        if control:
            await inner.start_at(path)
            assert os.stat(path).st_mode & 0o777 == 0o600
        outer = listener(ProxyApp(path), PREFIX)
        port = await outer.start("127.0.0.1", 0)
        client = await RawClient.to(port)
        try:
            yield client, there
        finally:
            await outer.stop(0.1)
            await inner.stop(0.1)


def of_site(test: Callable[[RawClient, Control], Awaitable[None]], *, control: bool = True) -> None:
    async def main() -> None:
        async with site(control=control) as (client, there):
            await test(client, there)

    run(main)


def test_a_request_goes_on_as_it_came_and_its_answer_back() -> None:
    async def test(client: RawClient, control: Control) -> None:
        status, headers, body = await client.ask(
            b"POST /admin/a%20b?x=1&y=%2F HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer of-the-caller\r\nX-Penstock-Request-Id: forged\r\n"
            b"Content-Length: 5\r\n\r\nhello"
        )
        told = orjson.loads(body)
        assert (status, headers["x-own"]) == (207, "yes")
        assert (told["method"], told["target"], told["query"]) == (
            "POST", "/admin/a%20b", "x=1&y=%2F",
        )  # fmt: skip
        assert told["bytes"] == 5
        # Whoever answers checks the credentials again.
        assert told["headers"]["authorization"] == "Bearer of-the-caller"
        assert told["headers"]["host"] == "localhost"
        # One id, which the client was told; not what a stranger says it is.
        assert told["request_id"] == headers["x-amzn-requestid"]
        assert told["request_id"].startswith(PREFIX)

    of_site(test)


@pytest.mark.parametrize(
    ("request_line", "status"), [(b"HEAD /x", 207), (b"GET /nothing", 204), (b"GET /x", 207)]
)
def test_the_connection_serves_on_after_any_kind_of_answer(
    request_line: bytes, status: int
) -> None:
    async def test(client: RawClient, control: Control) -> None:
        for _ in range(2):
            client.write(request_line + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = await client.answer(head=request_line.startswith(b"HEAD"))
            assert told[0] == status

    of_site(test)


def test_a_streamed_answer_comes_piece_by_piece() -> None:
    async def test(client: RawClient, control: Control) -> None:
        client.write(b"GET /pieces HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.reader.readuntil(b"one")
        assert not control.left.is_set()
        control.more.set()
        await client.reader.readuntil(b"0\r\n\r\n")

    of_site(test)


def test_who_goes_away_ends_the_request_there_too() -> None:
    async def test(client: RawClient, control: Control) -> None:
        client.write(b"GET /pieces HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.reader.readuntil(b"one")
        client.close()
        await until(control.left.is_set)

    of_site(test)


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    async def test(client: RawClient, control: Control) -> None:
        client.write(b"GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.reader.readuntil(b"one")
        assert not (await client.closed()).endswith(b"0\r\n\r\n")

    of_site(test)


def test_without_the_control_plane_its_paths_are_told_to_be_away() -> None:
    async def test(client: RawClient, control: Control) -> None:
        status, headers, body = await client.ask(
            b"GET /admin/copies HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        assert (status, headers["retry-after"]) == (503, "1")
        assert orjson.loads(body)["code"] == "control-plane-away"

    of_site(test, control=False)


async def test_a_listener_with_a_port_believes_no_id_of_a_client() -> None:
    control = Control()
    open_to_all = listener(control.app(), PREFIX)
    client = await RawClient.to(await open_to_all.start("127.0.0.1", 0))
    _, headers, _ = await client.ask(
        b"GET /x HTTP/1.1\r\nHost: localhost\r\n" + REQUEST_ID_HEADER + b": forged\r\n\r\n"
    )
    assert control.asked[0]["request_id"] == headers["x-amzn-requestid"]
    await open_to_all.stop(0.1)
