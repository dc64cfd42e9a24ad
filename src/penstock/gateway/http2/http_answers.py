"""The answering side of an HTTP request over HTTP/2: the same calls for doors as over HTTP/1.1.

Doors write the head of an answer as lines and its body as bytes; here they become fields and frames
of the request's stream. There is no order among the answers of a connection, so none waits for
another.

A producer that is faster than its client is asked to wait, with the bounds of HTTP/1.1
(`answer_pipeline.py`). `http_requests.py` extends the stream with reading a request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from penstock.gateway.http.answer_pipeline import (
    LARGE_PART_BYTES,
    PARTS_UNDER_WAY_MAX,
    UNREAD_BYTES_MAX,
    UNREAD_BYTES_PACED,
    UNREAD_BYTES_STALLED,
    UNREAD_STALL_S_MAX,
)
from penstock.gateway.http.call import Call
from penstock.gateway.http.listener_state import ListenerState
from penstock.gateway.http2.exchange import Http2Carrier, Http2Exchange
from penstock.gateway.http2.http_port import HttpPort
from penstock.wire.http2.hpack import Field

log = logging.getLogger(__name__)

_HEAD: Final = b"HEAD"
_LENGTH: Final = b"content-length"
_CHUNKED: Final = 2  #: any value of `Call.started` that says yes


class HttpAnswerStream(Http2Exchange):
    """The way back to the client of one call, which uses it as its `connection`."""

    __slots__ = ("_paced", "_part_bytes_max", "_writable_waiters", "call", "port")

    http_version = "2"

    def __init__(self, connection: Http2Carrier, stream: int, port: HttpPort) -> None:
        super().__init__(connection, stream)
        self.port = port
        self.call: Call | None = None  #: None before the request is complete, and after its answer
        self._paced = False  #: the producer is asked to wait
        self._part_bytes_max = 0  #: the largest part of a streamed answer so far
        self._writable_waiters: list[asyncio.Future[None]] = []

    # For the call and its door

    @property
    def listener(self) -> ListenerState:
        return self.port.http

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""
        return self.waiting_bytes

    def about(self, name: str) -> Any:
        """What the transport knows: `peername`, `sockname`, `sslcontext`."""
        connection = self.connection
        return connection.about(name) if connection is not None else None

    def take_back(self, call: Call) -> None:
        """The body that `call` holds is not needed any more."""
        size = call.body_held
        call.body_held = 0
        call.body = b""
        self.port.give(size)

    def give_back(self, size: int) -> None:
        """A body of this size, which its call gave away, is not needed any more."""
        self.port.give(size)

    def send_part(self, call: Call, data: bytes) -> None:
        """A part of a streamed answer."""
        self.send(data)
        unread_bytes = self.waiting_bytes
        if not unread_bytes:
            return
        self._part_bytes_max = largest = max(self._part_bytes_max, len(data))
        if unread_bytes > UNREAD_BYTES_PACED and not self._paced:
            self._paced = True
            call.pace(waits=True)
        under_way = largest if largest >= LARGE_PART_BYTES else 0
        if unread_bytes > max(UNREAD_BYTES_MAX, PARTS_UNDER_WAY_MAX * under_way):
            log.warning("a client does not read its answer: stream cut")
            self.abort()

    async def wait_writable(self, call: Call) -> None:
        """Returns when the client has taken everything so far, or has gone."""
        while self.connection is not None and self.waits:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._writable_waiters.append(waiter)
            await waiter

    def abort(self) -> None:
        """Resets the stream, at the end of this turn of the loop: the call's door may be in the
        middle of something. Other streams of the connection go on."""
        asyncio.get_running_loop().call_soon(self.reset)

    # Of an exchange

    def on_room(self) -> None:
        if self._paced:
            self._paced = False
            if self.call is not None:
                self.call.pace(waits=False)
        self._wake()

    def on_written(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.front_door.written(call)

    def on_gone(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.abandon()
        self._wake()

    def stalled(self, now: float) -> bool:
        if self.waiting_bytes > UNREAD_BYTES_STALLED and self.waits_s(now) >= UNREAD_STALL_S_MAX:
            return True
        return super().stalled(now)

    def _wake(self) -> None:
        waiters, self._writable_waiters = self._writable_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Http2Call(Call):
    """A call whose answer leaves on a stream of HTTP/2; for doors it is like any other."""

    __slots__ = ()

    def answer(self, head: bytes, body: bytes) -> None:
        stream = self._stream()
        if stream is None or self.started:
            return
        self.finished = True
        self.drop_body()
        fields = stream.port.fields(head)
        own = stream.port.request_id(self.number), (_LENGTH, b"%d" % len(body))
        if not body or self.method == _HEAD:
            stream.finish(fields, own)
            return
        stream.send_head(fields, own)
        stream.send_last(body)

    def start(self, head: bytes, *, length: int | None = None) -> None:
        stream = self._stream()
        if stream is None or self.started:
            return
        self.started = _CHUNKED
        fields = stream.port.fields(head)
        own: tuple[Field, ...] = (stream.port.request_id(self.number),)
        if length is not None:
            own = (*own, (_LENGTH, b"%d" % length))
        stream.send_head(fields, own)

    def start_without_body(self, head: bytes) -> None:
        stream = self._stream()
        if stream is None or self.started:
            return
        self.finished = True
        self.drop_body()
        stream.finish(stream.port.fields(head), (stream.port.request_id(self.number),))

    def send(self, chunk: bytes) -> None:
        stream = self._stream()
        if stream is not None and chunk and self.method != _HEAD:
            stream.send_part(self, chunk)

    def finish(self) -> None:
        stream = self._stream()
        if stream is not None:
            self.finished = True
            self.drop_body()
            stream.send_last(b"")

    def _stream(self) -> HttpAnswerStream | None:
        """Where its answer goes; None: nothing more of it can be sent."""
        return None if self.finished else cast("HttpAnswerStream | None", self.connection)
