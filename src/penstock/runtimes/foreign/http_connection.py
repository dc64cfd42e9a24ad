"""One kept-alive HTTP/1.1 connection to a foreign model server on this machine.

Sends one request at a time and hands over the whole answer. Knows HTTP, not models.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import httptools

#: Less than a frame between instance and gateway holds, with its head.
ANSWER_BYTES_MAX = (1 << 30) - 65_536

#: What a server that does not speak HTTP stands for, as a proxy would say it.
BAD_ANSWER = 502

_LENGTH_HEADERS = {"content-length", "transfer-encoding"}


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]  #: names in lower case
    body: bytes


#: None: the connection broke before the answer was whole
Answered = Callable[[HttpAnswer | None], None]


class ForeignHttpConnection(asyncio.Protocol):
    """Use: await `open`, then `send`; while `busy`, nothing else may be sent."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answered: Answered | None = None
        self._headers: dict[str, str] = {}
        self._head_read = False
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def open(self) -> None:
        """Raises OSError if nobody listens."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, answered: Answered
    ) -> None:
        assert self._answered is None, "one request at a time"
        if self._transport is None:
            asyncio.get_running_loop().call_soon(answered, None)
            return
        self._answered = answered
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: 127.0.0.1:{self._port}",
            f"content-length: {len(body)}",
        ]
        lines += [f"{name}: {_clean(value)}" for name, value in headers.items()]
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._acknowledge_at_once()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(HttpAnswer(BAD_ANSWER, {}, f"not HTTP: {error}".encode()))
            self.close()

    def _acknowledge_at_once(self) -> None:
        """Plain servers write head and body apart, and Nagle's algorithm holds the second until
        the first is acknowledged: 40 ms later, unless the kernel is told not to wait."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def eof_received(self) -> None:
        if self._head_read and not _LENGTH_HEADERS & self._headers.keys():
            self._finish(self._whole())  # so HTTP/1.0 marks the end of a body

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(None)

    # httptools

    def on_message_begin(self) -> None:
        self._headers = {}
        self._head_read = False
        self._body = []
        self._body_bytes = 0

    def on_headers_complete(self) -> None:
        self._head_read = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > ANSWER_BYTES_MAX:
            message = f"the answer is larger than {ANSWER_BYTES_MAX} bytes"
            self._finish(HttpAnswer(BAD_ANSWER, {}, message.encode()))
            self.close()
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # 100 Continue: the answer is still to come
            self._head_read = False
            return
        keep_alive = self._parser.should_keep_alive()
        answer = self._whole()
        if not keep_alive:
            self.close()
        self._parser = httptools.HttpResponseParser(self)
        self._head_read = False
        self._finish(answer)

    def _whole(self) -> HttpAnswer:
        return HttpAnswer(self._parser.get_status_code(), self._headers, b"".join(self._body))

    def _finish(self, answer: HttpAnswer | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


def _clean(value: str) -> str:
    """No header value may end its line."""
    return value.replace("\r", " ").replace("\n", " ")
