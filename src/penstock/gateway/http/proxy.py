"""What this process has no door for is answered by the control plane's: an ASGI application that
hands requests on over a Unix socket, and their answers back as they come.

A request goes on as it came, its credentials included: whoever answers it checks them again, and
believes nothing that another process says of its caller. A connection of its own each: these paths
are not hot, and no answer waits behind another. A client that goes away ends its request there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httptools
import orjson

from penstock.cleanup import shielded
from penstock.gateway.http.asgi import REQUEST_ID_HEADER, Message, Scope

#: Framing belongs to a connection, and the id is ours to say.
_NOT_HANDED_ON: Final = frozenset(
    (b"connection", b"content-length", b"expect", b"keep-alive", b"te", b"trailer",
     b"transfer-encoding", b"upgrade", REQUEST_ID_HEADER)
)  # fmt: skip
_READ_BYTES: Final = 65_536

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ProxyApp:
    """Asks the HTTP server at a Unix socket."""

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
        answer = _ProxiedAnswer(scope["method"])
        try:
            reader, writer = await self.open()
        except OSError:
            await self.away(scope, body, send)
            return
        try:
            writer.write(_head(scope, len(body)) + body)
            while not answer.complete:
                try:
                    data = await reader.read(_READ_BYTES)
                except OSError:
                    data = b""
                if not data and not answer.begun:
                    await self.away(scope, body, send)
                    return
                # Broken off: raised here, so that the client's connection is cut as well.
                answer.feed(data)
                for message in answer.take():
                    await send(message)
        finally:
            writer.close()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError."""
        return await asyncio.open_unix_connection(self._path)

    async def away(self, scope: Scope, body: bytes, send: Send) -> None:
        """Answers a request that nobody has answered."""
        await _send_away(send)


class _ProxiedAnswer:
    """An answer as it is read, as the messages that it becomes."""

    def __init__(self, method: str) -> None:
        self.begun = False
        self.complete = False
        self._bodyless = method == "HEAD"
        self._headers: list[tuple[bytes, bytes]] = []
        self._messages: list[Message] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Raises where this is no answer, or it ends too soon."""
        if not data:
            raise ConnectionError("the control plane's process has broken off its answer")
        self._parser.feed_data(data)

    def take(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    # The parser's callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.begun = True
        status = self._parser.get_status_code()
        start: dict[str, Any] = {"type": "http.response.start", "status": status}
        self._messages.append(start | {"headers": self._headers})
        if self._bodyless:
            self._end()

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        if not self.complete:
            self._end()

    def _end(self) -> None:
        self.complete = True
        self._messages.append({"type": "http.response.body", "body": b"", "more_body": False})


def _head(scope: Scope, body_bytes: int) -> bytes:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode("latin-1"), target)]
    lines += [b"%b: %b" % pair for pair in scope["headers"] if pair[0] not in _NOT_HANDED_ON]
    lines.append(b"%b: %b" % (REQUEST_ID_HEADER, scope["penstock.request_id"].encode()))
    lines.append(b"content-length: %d\r\nconnection: close\r\n\r\n" % body_bytes)
    return b"\r\n".join(lines)


async def _send_away(send: Send) -> None:
    """The control plane's process does not answer: requests for models do not need it."""
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
