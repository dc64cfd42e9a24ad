"""One HTTP/1.1 connection to a region: a request out, its answer in, piece by piece.

One exchange at a time; the connection is kept for the next one. The answer is given on as it comes,
and reading pauses while whoever asked can't take more. Parsing is httptools', as on the other side
(`gateway/http/connection.py`). Nothing here knows what is asked, or what to do when a region is
gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools

log = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 65_536
FIELDS_MAX: Final = 256
_BODYLESS: Final = (204, 304)

#: Why an exchange ended before its answer did.
LOST: Final = "connection-lost"
GARBLED: Final = "answer-malformed"

Headers = list[tuple[bytes, bytes]]


class Asker(Protocol):
    """Who asked. Called on the event loop in this order; must not raise."""

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        """`length`: of the body, where the region told it."""

    def on_body(self, data: bytes) -> None:
        """The next piece."""

    def on_end(self) -> None:
        """The answer is complete."""

    def on_lost(self, reason: str) -> None:
        """There will be no answer, or no more of it."""


class UpstreamConnection(asyncio.Protocol):
    """The protocol of one connection; made by a pool, which is told when it is free or gone."""

    def __init__(self, free: Callable[[UpstreamConnection], None]) -> None:
        """`free`: called when the next request may be sent, or the connection has ended."""
        self._free = free
        self._transport: asyncio.Transport | None = None
        self._asker: Asker | None = None
        self._head_only = False
        self.ended = False
        self.answered_bytes = 0  #: of the present answer, head included
        self.used = 0  #: exchanges before the present one
        self.idle_since = 0.0
        self._forget()

    def _forget(self) -> None:
        self._headers: Headers = []
        self._head_bytes = 0
        self._length: int | None = None
        self._until_end = False  #: the body ends with the connection

    def ask(self, asker: Asker, request: bytes, *, head_only: bool) -> None:
        """Sends a whole request. `head_only`: its answer has no body whatever its head says."""
        assert self._asker is None
        assert self._transport is not None
        self._asker = asker
        self._head_only = head_only
        self.answered_bytes = 0
        self._parser = httptools.HttpResponseParser(self)
        self._forget()
        self._transport.write(request)

    def drop(self) -> None:
        """Nobody wants the answer any more: what a region hears of it is the connection's end."""
        self._asker = None
        self.abort()

    def abort(self) -> None:
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._asker is None:
            self.abort()  # nothing was asked: whatever this is, it is no answer
            return
        self.answered_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(GARBLED, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        asker, self._asker = self._asker, None
        self._parser = None
        if asker is not None:
            if exc is None and self._until_end:
                asker.on_end()
            else:
                asker.on_lost(LOST)
        self._free(self)

    # The parser's callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES_MAX or len(self._headers) >= FIELDS_MAX:
            raise ValueError("the head of an answer is too large")
        lower = name.lower()
        if lower == b"content-length":
            self._length = int(value)
        self._headers.append((lower, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._asker is None:
            return
        chunked = any(name == b"transfer-encoding" for name, _ in self._headers)
        bodyless = self._head_only or status in _BODYLESS
        self._until_end = self._length is None and not chunked and not bodyless
        length = 0 if bodyless else self._length
        self._asker.on_head(status, self._headers, length)
        if self._head_only:
            self._complete(keep=False)  # the parser would wait for the body that is told of

    def on_body(self, data: bytes) -> None:
        if self._asker is not None:
            self._asker.on_body(data)

    def on_message_complete(self) -> None:
        if self._asker is None:
            return
        if self._parser.get_status_code() < 200:
            self._forget()
            return
        self._complete(keep=self._parser.should_keep_alive() and not self._until_end)

    def _complete(self, *, keep: bool) -> None:
        asker, self._asker = self._asker, None
        self.used += 1
        if not keep:
            self.abort()
        self._forget()
        if asker is not None:
            asker.on_end()
        if keep and not self.ended:
            self.resume()
            self._free(self)

    def _fail(self, reason: str, error: Exception) -> None:
        log.warning("a region's answer can't be read: %s", error)
        asker, self._asker = self._asker, None
        self.abort()
        if asker is not None:
            asker.on_lost(reason)
