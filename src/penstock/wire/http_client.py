"""One HTTP/1.1 connection to a server: a request out, its answer in, piece by piece.

It has one exchange at a time, and keeps the connection for the next one (`http_pool` keeps many).
It passes the answer on as it arrives, and stops reading while the reader can't take more. It knows
nothing about the requests, or what to do when a server is gone.

httptools parses, as on the server side (`gateway/http/connection.py`): llhttp in strict
mode, which refuses anything that two readers could frame in two ways (Content-Length beside
Transfer-Encoding or given twice, bare line feeds, folded lines, bad chunk sizes). This module adds
bounds on heads, trailers and bodies, refuses transfer codings except `chunked`, and never uses a
connection again on which unrequested bytes arrived (RFC 9112, 6 and 9.2).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

import httptools

log = logging.getLogger(__name__)

#: Headers for one connection only, which are not forwarded (RFC 9110, 7.6.1).
HOP_BY_HOP: Final = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip

#: Reasons for which an exchange ended before its answer did.
UNREACHABLE: Final = "unreachable"
UNTRUSTED: Final = "certificate-untrusted"
LOST: Final = "connection-lost"
MALFORMED: Final = "answer-malformed"
TOO_LARGE: Final = "answer-too-large"

#: Status for an answer that can't be read, as a proxy would send it.
BAD_GATEWAY: Final = 502

#: Statuses without a body, whatever the head says.
BODYLESS: Final = (204, 304)
#: Position of the connection in an answer; bytes after its end belong to no answer.
_HEAD: Final = 0
_BODY: Final = 1
_ENDED: Final = 2

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClientSpec:
    """Where a server listens, and bounds on its answers."""

    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    path: str = ""  #: Unix socket, instead of host and port; "" = none
    #: makes a connected socket, instead of host and port; raises OSError; None = the usual way
    opened: Callable[[], Awaitable[socket.socket]] | None = None
    connect_s_max: float | None = None  #: with the TLS handshake; None = the system's own limit
    head_bytes_max: int = (
        65_536  #: bound of a head, and of all framing between two pieces of a body
    )
    fields_max: int = 256  #: most fields of a head
    body_bytes_max: int = sys.maxsize  #: set it where the reader has no bound of its own
    idle_max: int = 0  #: most idle connections that a pool keeps
    idle_s_max: float = 0.0  #: how long it keeps one: less than the server does
    acknowledge_at_once: bool = False  #: see `HttpClientConnection.data_received`


class AnswerReader(Protocol):
    """The caller. Its methods are called on the event loop in this order and must not raise."""

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        """`headers`: names in lower case. `length`: of the body, if the server stated it."""

    def on_body(self, data: bytes) -> None:
        """The next piece."""

    def on_end(self) -> None:
        """The answer is complete. Trailers are read and left out."""

    def on_lost(self, reason: str, detail: str) -> None:
        """The answer ends here, incomplete: one of the reasons above, and details in words."""


class HttpClientConnection(asyncio.Protocol):
    """The protocol of one connection, made by `connect`."""

    __slots__ = (
        "_body_bytes", "_coding", "_framing_bytes", "_head_only", "_headers", "_keep", "_length",
        "_on_free", "_parser", "_paused", "_phase", "_reader", "_socket", "_transport",
        "_until_end", "answered_bytes", "ended", "idle_since", "spec", "used",
    )  # fmt: skip

    def __init__(
        self,
        spec: HttpClientSpec,
        on_free: Callable[[HttpClientConnection], None] | None = None,
    ) -> None:
        """`on_free`: called when the next request may be sent, or the connection has ended."""
        self.spec = spec
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._socket: socket.socket | None = None  #: set where reads are acknowledged at once
        self._reader: AnswerReader | None = None
        self._head_only = False
        self._paused = False
        self.ended = False
        self.answered_bytes = 0  #: bytes of the present answer, head included
        self.used = 0  #: exchanges before the present one
        self.idle_since = 0.0  #: monotonic s; set by the pool
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._phase = _HEAD
        self._headers: Headers = []
        self._framing_bytes = 0  #: upper bound of the bytes since the last piece of a body
        self._body_bytes = 0
        self._length: int | None = None
        self._coding = False  #: the body is chunked
        self._until_end = False  #: the body ends with the connection
        self._keep = True

    def ask(self, reader: AnswerReader, request: bytes, *, head_only: bool = False) -> None:
        """Sends a whole request. `head_only`: its answer has no body, whatever its head says.

        The previous one must have been answered. If the connection has ended, a later callback
        tells the reader.
        """
        assert self._reader is None, "one request at a time"
        self._reader = reader
        self._head_only = head_only
        self.answered_bytes = 0
        if self.ended or self._transport is None:
            asyncio.get_running_loop().call_soon(self._lose, LOST, "the connection has ended")
            return
        self._transport.write(request)

    def drop(self) -> None:
        """The answer is no longer wanted: closes the connection, which also tells the server."""
        self._reader = None
        self.abort()

    def abort(self) -> None:
        """Ends the connection; a waiting reader gets `on_lost`."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stops reading the answer, so that the server has to wait as well. Idempotent."""
        if not self._paused and not self.ended and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.ended and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.spec.acknowledge_at_once:
            self._socket = transport.get_extra_info("socket")
        if self.ended:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._socket is not None:
            # Plain servers write head and body apart, and Nagle's algorithm holds the second until
            # the first is acknowledged: 40 ms later, unless the kernel is told not to wait.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if self._reader is None:
            self.abort()  # nothing was requested, so this is no answer
            return
        self.answered_bytes += len(data)
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as wrapped:
            log.error("reading an answer failed", exc_info=wrapped.__context__ or wrapped)
            self._lose(MALFORMED, "it could not be read")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep = False
            if self._phase != _ENDED:
                self._lose(MALFORMED, f"not HTTP: {error}")
        if self._phase == _ENDED:
            self._complete()
        elif self._framing_bytes > self.spec.head_bytes_max:
            self._lose(MALFORMED, "its head or its trailers do not end")

    def eof_received(self) -> None:
        self.ended = True
        if self._until_end:  # HTTP/1.0 marks the end of a body like this
            self._keep = False
            self._complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._transport = None
        # it refers to this object's methods, a cycle that would wait for the GC
        self._parser = None
        self._lose(LOST, "the connection broke before the answer ended")
        if self._on_free is not None:
            self._on_free(self)

    # The parser's callbacks. After one that ends the exchange, the others ignore the rest of a
    # read.

    def on_message_begin(self) -> None:
        if self._phase == _ENDED:
            self._keep = False  # a second answer, which nobody requested

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != _HEAD:
            return  # a trailer, which is not used
        lower = name.lower()
        self._headers.append((lower, value))
        if lower == b"content-length":
            self._length = int(value)
        elif lower == b"transfer-encoding":
            if self._coding or value.lower() != b"chunked":
                self._lose(MALFORMED, "not HTTP: a transfer coding that is not chunked")
            self._coding = True

    def on_headers_complete(self) -> None:
        if self._phase != _HEAD or self._reader is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                self._lose(MALFORMED, f"not HTTP: status {status}")
            return  # an interim answer: the final one is still to come
        if len(self._headers) > self.spec.fields_max or (
            # counts whole reads, which may include a body
            self._framing_bytes > self.spec.head_bytes_max
            and sum(len(n) + len(v) for n, v in self._headers) > self.spec.head_bytes_max
        ):
            self._lose(MALFORMED, "its head is too large")
            return
        bodyless = self._head_only or status in BODYLESS
        length = 0 if bodyless else self._length
        if length is not None and length > self.spec.body_bytes_max:
            self._lose_large()
            return
        self._until_end = length is None and not self._coding
        self._phase = _BODY
        self._framing_bytes = 0
        self._reader.on_head(status, self._headers, length)
        if self._head_only:
            self._keep = False  # the parser would wait for the body that the head announces
            self._phase = _ENDED

    def on_body(self, data: bytes) -> None:
        if self._phase != _BODY or self._reader is None:
            return
        self._framing_bytes = 0
        self._body_bytes += len(data)
        if self._body_bytes > self.spec.body_bytes_max:
            self._lose_large()
        else:
            self._reader.on_body(data)

    def on_message_complete(self) -> None:
        if self._phase == _HEAD:
            read = self._framing_bytes
            self._begin_answer()
            self._framing_bytes = read  # bounds trailers and chunk heads too
        elif self._phase == _BODY:
            self._phase = _ENDED
            self._keep = self._parser.should_keep_alive()

    # The end of an exchange

    def _complete(self) -> None:
        reader, self._reader = self._reader, None
        self.used += 1
        if self._keep:
            self._begin_answer()
            if self._paused:
                self.resume()
        else:
            self.abort()
        if reader is not None:
            reader.on_end()
        if self._on_free is not None and not self.ended:
            self._on_free(self)

    def _lose_large(self) -> None:
        self._lose(TOO_LARGE, f"the answer is larger than {self.spec.body_bytes_max} bytes")

    def _lose(self, reason: str, detail: str) -> None:
        reader, self._reader = self._reader, None
        self.abort()
        if reader is not None:
            reader.on_lost(reason, detail)


async def connect(
    spec: HttpClientSpec, on_free: Callable[[HttpClientConnection], None] | None = None
) -> HttpClientConnection:
    """Raises OSError: no server listens, not in time (TimeoutError), not trusted (ssl.SSLError)."""
    loop = asyncio.get_running_loop()
    connection = HttpClientConnection(spec, on_free)
    async with asyncio.timeout(spec.connect_s_max):
        if spec.path:
            await loop.create_unix_connection(lambda: connection, spec.path)
        elif spec.opened is not None:
            await loop.create_connection(lambda: connection, sock=await spec.opened())
        else:
            await loop.create_connection(lambda: connection, spec.host, spec.port, ssl=spec.tls)
    return connection


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]  #: names in lower case; of a repeated one, the last value
    body: bytes


class WholeAnswer:
    """Collects one answer; an `AnswerReader`.

    An answer that can't be read, or is too large, becomes the one that a proxy would send, with the
    cause as its body: the server has had the request.
    """

    __slots__ = ("_answered", "_headers", "_pieces", "_status")

    def __init__(self, answered: Callable[[HttpAnswer | None], None]) -> None:
        """`answered`: gets the answer; None where the connection broke before it was whole."""
        self._answered = answered
        self._pieces: list[bytes] = []

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        self._headers = headers

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def answer(self) -> HttpAnswer:
        """What there is of it, from its head on."""
        return HttpAnswer(self._status, dict(self._headers), b"".join(self._pieces))

    def on_end(self) -> None:
        self._tell(self.answer())

    def on_lost(self, reason: str, detail: str) -> None:
        self._tell(None if reason == LOST else HttpAnswer(BAD_GATEWAY, {}, detail.encode()))

    def _tell(self, answer: HttpAnswer | None) -> None:
        # Who hears of it may name this object: both would keep the answer until the collector of
        # cycles comes.
        answered, self._answered = self._answered, _told
        answered(answer)


def _told(answer: HttpAnswer | None) -> None:
    """An answer is told once."""


async def fetch(spec: HttpClientSpec, request: bytes, *, timeout_s: float) -> HttpAnswer | None:
    """Sends one request over a new connection; returns its answer as `WholeAnswer` does.

    Raises OSError: no server listens, or there is no answer in time (TimeoutError).
    """
    answered: asyncio.Future[HttpAnswer | None] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(timeout_s):
        connection = await connect(spec)
        try:
            connection.ask(WholeAnswer(answered.set_result), request)
            return await answered
        finally:
            connection.drop()


def request_of(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A whole request with its length. Line ends in a value become spaces."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"content-length: {len(body)}\r\n\r\n")
    head = "\r\n".join(lines)
    if head.count("\r") + head.count("\n") > 2 * len(lines) + 2:
        one_line = [line.replace("\r", " ").replace("\n", " ") for line in lines[:-1]]
        head = "\r\n".join([*one_line, lines[-1]])
    return head.encode("latin-1", "replace") + body
