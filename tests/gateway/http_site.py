"""An HTTP listener with a scripted door, an application and a gatekeeper, for clients in tests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kit.gateway import PREFIX
from tests.kit.http_clients import RawClient

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.host_gate import HostGate
from penstock.errors import CallerError, PenstockError
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http.shared_port import SharedPort
from penstock.gateway.http_server.listener import HttpServerListener
from penstock.gateway.request_id import RequestIds
from penstock.wire.aws.errors import AwsError

POST = b"POST /hot/x HTTP/1.1\r\nHost: x\r\n"


class ScriptedDoor:
    """Echoes at once; under /hot/later it waits to be told."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.handled: list[bytes] = []
        self.refused: list[str] = []
        self.written_urls: list[bytes] = []
        self.abandoned_urls: list[bytes] = []

    def handle(self, call: Call) -> bool:
        self.handled.append(call.url)
        if call.path == b"/hot/later":
            self.waiting.append(call)
        elif call.path == b"/hot/broken":
            raise RuntimeError("a bug")
        elif call.path == b"/hot/big":
            call.answer(status_line(200), b"x" * 20_000_000)
        elif call.path == b"/hot/declined":
            return False
        else:
            call.answer(status_line(200) + b"x-query: " + call.query + b"\r\n", call.body)
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        self.refused.append(error.code)
        call.answer(status_line(error.status), error.code.encode())

    def written(self, call: Call) -> None:
        self.written_urls.append(call.url)

    def abandoned(self, call: Call) -> None:
        self.abandoned_urls.append(call.url)


class ScriptedApplication:
    """Answers by the path; under /wait it waits until its client is gone."""

    def __init__(self) -> None:
        self.waiting = 0
        self.disconnects: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/raise":
            raise RuntimeError("a bug")
        if scope["path"] == "/wait":
            await receive()
            self.waiting += 1
            self.disconnects.append((await receive())["type"])
            return
        body = (await receive())["body"]
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for piece in (b"one ", b"two ", body):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} ".encode()
        status = 204 if scope["path"] == "/nothing" else 200
        request_id = scope["penstock.request_id"].encode()
        headers = [(b"content-type", b"text/plain"), (b"x-id", request_id)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text + body})


class HttpSite:
    def __init__(
        self,
        listener: HttpServerListener,
        door: ScriptedDoor,
        application: ScriptedApplication,
        port: int,
    ) -> None:
        self.listener = listener
        self.door = door
        self.application = application
        self.port = port
        self.clients: list[RawClient] = []

    async def client(self, **options: Any) -> RawClient:
        client = await RawClient.to(self.port, **options)
        self.clients.append(client)
        return client


@asynccontextmanager
async def site(
    *,
    authenticator: Any = None,
    tls: ssl.SSLContext | None = None,
    gate: HostGate | None = None,
    bodies: BodyBudget | None = None,
    kept: SharedPort | None = None,
    **limits: Any,
) -> AsyncIterator[HttpSite]:
    """`kept`: the port that it listens at, which outlives it."""
    door, application = ScriptedDoor(), ScriptedApplication()
    listener = HttpServerListener(
        limits=LimitConfig(**limits),
        clock=SystemClock(),
        ids=RequestIds(PREFIX),
        doors=[(b"/hot/", door)],
        fallback=AsgiDoor(application),
        authenticator=authenticator,
        gate=gate or HostGate(hosts=("x",)),
        bodies=bodies,
    )
    port = await listener.start(
        "127.0.0.1", kept.port if kept else 0, tls=tls, held=kept.sockets if kept else ()
    )
    served = HttpSite(listener, door, application, port)
    try:
        yield served
    finally:
        for client in served.clients:
            client.close()
        await listener.stop(0.0)


class Gatekeeper:
    """Lets in who says in a header what the body is."""

    def __init__(self) -> None:
        self.heads: list[tuple[str, bytes, bytes]] = []
        self.seen: list[tuple[str, bytes, bytes, bytes]] = []

    def check_head(
        self, method: str, raw_path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self.heads.append((method, raw_path, query))
        given = dict(headers).get(b"Authorization")
        if raw_path == b"/hot/open":
            return
        if given is None:
            raise AwsError("MissingAuthenticationTokenException", "Who?", status=403)
        if given == b"unknown":
            raise AwsError("UnrecognizedClientException", "Nobody knows you.", status=403)

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        self.seen.append((method, raw_path, query, body))
        given = dict(headers).get(b"Authorization")
        if raw_path != b"/hot/open" and body != given:
            raise CallerError("wrong", "The signature is not of this body.", status=403)
