"""An ASGI application that forwards requests to the control plane's process over a Unix socket.

It serves the paths that this process has no door for. Answers stream back as they come. A request
is forwarded with its credentials: the control plane checks them again, and trusts nothing that
another process says about the caller. Each request has a connection of its own: these paths are not
hot, and no answer waits behind another. If the client goes away, its request ends there too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from penstock.cleanup import shielded
from penstock.gateway.http.asgi import REQUEST_ID_HEADER, Message, Scope
from penstock.wire.http_client import (
    HOP_BY_HOP,
    LOST,
    Headers,
    HttpClientConnection,
    HttpClientSpec,
    connect,
)

#: Headers that are not forwarded: framing belongs to a connection, and we set the request id.
_NOT_HANDED_ON: Final = HOP_BY_HOP | {b"content-length", b"expect", REQUEST_ID_HEADER}

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ProxyApp:
    """Forwards requests to the HTTP server at a Unix socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        asking = asyncio.ensure_future(self._ask(scope, body, send))
        leaving = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not asking.done():
                asking.cancel()
            await shielded(asyncio.gather(asking, leaving, return_exceptions=True))
        if not asking.cancelled() and (error := asking.exception()) is not None:
            raise error

    async def _ask(self, scope: Scope, body: bytes, send: Send) -> None:
        try:
            connection = await self.open()
        except OSError:
            await self.away(scope, body, send)
            return
        answer = _PulledAnswer(connection)
        try:
            request = _head(scope, len(body)) + body
            connection.ask(answer, request, head_only=scope["method"] == "HEAD")
            while (message := await answer.next()) is not None:
                await send(message)
        finally:
            connection.drop()
        if not answer.begun:
            await self.away(scope, body, send)

    async def open(self) -> HttpClientConnection:
        """Raises OSError."""
        return await connect(HttpClientSpec(path=self._path))

    async def away(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answers a request that got no answer."""
        await _send_away(send)


class _PulledAnswer:
    """An answer as ASGI messages. The connection is not read while a message waits."""

    def __init__(self, connection: HttpClientConnection) -> None:
        self.begun = False
        self._connection = connection
        self._messages: deque[Message] = deque()
        self._more = asyncio.Event()
        self._over = False
        self._fault = ""

    async def next(self) -> Message | None:
        """The next message; None: there are no more, or no answer came. Raises ConnectionError for
        a malformed or incomplete answer, so that the client is disconnected as well."""
        while not self._messages:
            if self._fault:
                raise ConnectionError(f"the control plane's process: {self._fault}")
            if self._over:
                return None
            self._more.clear()
            self._connection.resume()
            await self._more.wait()
        return self._messages.popleft()

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._connection.pause()
        self._more.set()

    # AnswerReader

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self.begun = True
        self._add({"type": "http.response.start", "status": status, "headers": headers})

    def on_body(self, data: bytes) -> None:
        self._add({"type": "http.response.body", "body": data, "more_body": True})

    def on_end(self) -> None:
        self._over = True
        self._add({"type": "http.response.body", "body": b"", "more_body": False})

    def on_lost(self, reason: str, detail: str) -> None:
        self._over = True
        if self.begun or reason != LOST:
            self._fault = detail
        self._more.set()


def _head(scope: Scope, body_bytes: int) -> bytes:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode("latin-1"), target)]
    lines += [b"%b: %b" % pair for pair in scope["headers"] if pair[0] not in _NOT_HANDED_ON]
    lines.append(b"%b: %b" % (REQUEST_ID_HEADER, scope["penstock.request_id"].encode()))
    lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % body_bytes)
    return b"\r\n".join(lines)


async def _send_away(send: Send) -> None:
    """The answer when the control plane's process does not respond. Inference does not need it."""
    told = {
        "code": "control-plane-away",
        "message": "The control plane does not answer.",
        "hint": "Endpoints are served all the same. Try again in a moment.",
    }
    body = orjson.dumps(told)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"1"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
