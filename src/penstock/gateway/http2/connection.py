"""One HTTP/2 connection: the socket and the time around `wire/http2`.

Bytes become events, and an event a call of its exchange's method; no task is made for a request.
All that is made in one turn of the event loop leaves in one write at its end. A request is over
when its last byte has left: the transport's high-water mark is 0, so `pause_writing` means exactly
"some bytes did not leave" (with TLS it may be over up to that mark early).

While the client does not take its answers, answers wait in their exchanges and keep their streams
open, so what it leaves unread is bounded by its streams. Reading goes on meanwhile, since windows
and cancellations come that way.

Timeouts are no timers here: the listener's one coarse timer calls `check`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from penstock.core.request.body_budget import peer_name
from penstock.gateway.http2.exchange import STALL_S_MAX, Http2Carrier, Http2Exchange
from penstock.gateway.http2.listener_state import Http2Shared
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import (
    ConnectionFailed,
    DataReceived,
    PingAnswered,
    RequestReceived,
    StreamReset,
    TrailersReceived,
    WindowOpened,
)
from penstock.wire.http2.frames import ENHANCE_YOUR_CALM, INTERNAL_ERROR

log = logging.getLogger(__name__)

#: s without a byte after which a client with open streams is asked for a sign of life, and the
#: time it has for that: as long as grpcio's server had it here.
PING_AFTER_S: Final = 60.0
PING_S_MAX: Final = 20.0
#: s that a connection may be open without a stream.
IDLE_S_MAX: Final = 600.0
_PING: Final = b"penstock"
#: More output is written in the pieces that it has: joining would copy a large answer.
_JOINED_BYTES_MAX: Final = 128 << 10

#: Makes the exchange of a request. One that it has answered already is over.
Door = Callable[[Http2Carrier, RequestReceived], Http2Exchange]


class Http2Protocol(asyncio.Protocol):
    """The protocol of one client connection."""

    __slots__ = (
        "_account", "_door", "_exchanges", "_flushing", "_idle_since", "_left_bytes", "_left_since",
        "_over", "_ping_sent", "_transport", "listener", "machine", "paused", "received", "waiting",
    )  # fmt: skip

    _transport: asyncio.Transport

    def __init__(self, listener: Http2Shared, door: Door) -> None:
        now = listener.monotonic()
        self.listener = listener
        self._door = door
        self.machine = Http2Connection(listener.spec, now=now)
        self.received = now  #: monotonic s of the last read
        self.paused = False  #: the transport holds bytes that the client has not read
        self.waiting: dict[int, Http2Exchange] = {}  #: their answers wait for the client
        self._exchanges: dict[int, Http2Exchange] = {}  #: by stream; not over
        self._over: list[Http2Exchange] = []  #: complete, but their last bytes have not left
        self._flushing = False  #: `flush` will be called in this turn of the loop
        self._idle_since = now
        self._ping_sent: float | None = None
        self._left_since = 0.0  #: monotonic s when the client last took bytes, while `paused`
        self._left_bytes = 0  #: in the transport then
        self._account: str | None = None

    # For exchanges

    @property
    def account(self) -> str:
        """The client whose connections share one account for bodies."""
        if self._account is None:
            address = self.about("peername")
            self._account = peer_name(str(address[0])) if address else ""
        return self._account

    def about(self, name: str) -> Any:
        """What the transport knows: `peername`, `sockname`, `sslcontext`."""
        return self._transport.get_extra_info(name)

    def flush_soon(self) -> None:
        """There is output: it leaves at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.listener.flush_soon(self)

    def over(self, exchange: Http2Exchange) -> None:
        """Its answer is complete."""
        self._forget(exchange)
        self._over.append(exchange)
        self.flush_soon()

    def lost(self, exchange: Http2Exchange) -> None:
        """It was reset."""
        self._forget(exchange)
        self.flush_soon()
        _tell(exchange.on_gone)

    def _forget(self, exchange: Http2Exchange) -> None:
        exchange.connection = None
        self._exchanges.pop(exchange.stream, None)
        if self.waiting:
            self.waiting.pop(exchange.stream, None)
        if not self._exchanges:
            self._idle_since = self.received

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._transport.get_extra_info("sslcontext") is None:
            # uvloop's TLS transport pauses at the mark and not above it: with 0 it would pause for
            # ever.
            self._transport.set_write_buffer_limits(high=0)
        if not self.listener.admit(self):
            self.machine.go_away(ENHANCE_YOUR_CALM, "too many connections")
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.received = now = self.listener.monotonic()
        self._flushing = True  # at the end of this method
        for event in self.machine.receive(data, now=now):
            kind = type(event)
            try:
                if kind is DataReceived:
                    stream, piece, flow_bytes, end = cast(DataReceived, event)
                    exchange = self._exchanges.get(stream)
                    if exchange is not None:
                        if flow_bytes:
                            exchange.on_data(piece, flow_bytes)
                        if end:
                            exchange.on_complete()
                elif kind is RequestReceived:
                    self._begin(cast(RequestReceived, event))
                else:
                    self._take(event)
            except Exception:
                self._break(cast(Any, event)[0])
        self.flush()

    def _break(self, stream: int) -> None:
        """An exception that is being handled ends one exchange and no other."""
        log.exception("serving a request over HTTP/2 failed")
        exchange = self._exchanges.get(stream)
        if exchange is not None:
            exchange.reset(INTERNAL_ERROR)
        else:
            self.machine.reset(stream, INTERNAL_ERROR)

    def _begin(self, event: RequestReceived) -> None:
        exchange = self._door(self, event)
        if exchange.connection is None:
            return  # answered at once
        self._exchanges[event.stream] = exchange
        if event.end:
            exchange.on_complete()

    def _take(self, event: object) -> None:
        if isinstance(event, TrailersReceived):
            exchange = self._exchanges.get(event.stream)
            if exchange is not None:
                exchange.on_complete()
        elif isinstance(event, StreamReset):
            exchange = self._exchanges.get(event.stream)
            if exchange is not None:
                self.lost(exchange)
        elif isinstance(event, WindowOpened):
            self._push(event.stream)
        elif isinstance(event, PingAnswered):
            self._ping_sent = None
        elif isinstance(event, ConnectionFailed):
            log.info("an HTTP/2 connection fails: %s", event.words)
            self._lose_all()

    def eof_received(self) -> None:
        """A client that has stopped sending counts as gone: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.listener.forget(self)
        self._lose_all()
        self._report_written()

    def pause_writing(self) -> None:
        self.paused = True
        self._left_since = self.listener.monotonic()
        self._left_bytes = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.paused = False
        for stream in list(self.waiting):
            if self.paused:
                break
            self._push(stream)
        self.flush_soon()

    def _push(self, stream: int) -> None:
        exchange = self.waiting.pop(stream, None)
        if exchange is not None:
            try:
                exchange.push()
            except Exception:
                self._break(stream)
            if exchange.connection is not None and exchange.waits:
                self.waiting[stream] = exchange

    # Output

    def flush(self) -> None:
        """Writes what there is."""
        self._flushing = False
        if self._transport.is_closing():
            return
        if not self.paused:
            parts = self.machine.take_parts()
            if sum(map(len, parts)) > _JOINED_BYTES_MAX:
                self._transport.writelines(parts)
            elif parts:
                self._transport.write(b"".join(parts))
        if self._over and not self.paused:
            self._report_written()
        if self.machine.closed:
            self._transport.close()

    def _report_written(self) -> None:
        written, self._over = self._over, []
        for exchange in written:
            _tell(exchange.on_written)

    def _lose_all(self) -> None:
        """Nobody will read the remaining answers."""
        lost, self._exchanges = self._exchanges, {}
        self.waiting.clear()
        for exchange in lost.values():
            exchange.connection = None
            _tell(exchange.on_gone)

    # For the listener

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""
        waiting = sum(exchange.waiting_bytes for exchange in self.waiting.values())
        return waiting + (self._transport.get_write_buffer_size() if self.paused else 0)

    @property
    def idle_s_max(self) -> float:
        """s that it may be open without a stream."""
        return IDLE_S_MAX

    def check(self, now: float) -> None:
        """Ends whatever takes too long."""
        if not self.machine.begun:
            if now - self._idle_since >= self.listener.head_timeout_s:
                self.abort()
            return
        if self.paused:
            size = self._transport.get_write_buffer_size()
            if size < self._left_bytes:
                self._left_since = now
            self._left_bytes = size
            if now - self._left_since >= STALL_S_MAX:
                log.warning("a client reads nothing of its answers: connection cut")
                self.abort()
                return
        for exchange in list(self._exchanges.values()):
            try:
                if not self.paused and exchange.stalled(now):
                    log.warning("a client reads nothing of an answer: stream cut")
                    exchange.reset()
                else:
                    exchange.check(now)
            except Exception:
                self._break(exchange.stream)
        self._check_life(now)

    def _check_life(self, now: float) -> None:
        if not self._exchanges:
            if now - self._idle_since >= self.idle_s_max and not self.machine.closed:
                self.machine.go_away()
                self.flush_soon()
        elif self._ping_sent is not None:
            if self.received > self._ping_sent:
                self._ping_sent = None
            elif now - self._ping_sent >= PING_S_MAX:
                self.abort()
        elif now - self.received >= PING_AFTER_S:
            self._ping_sent = now
            self.machine.ping(_PING)
            self.flush_soon()

    def drain(self) -> None:
        """Lets the client go on elsewhere; ends once its streams have ended."""
        self.machine.drain()
        self.flush_soon()

    def stop(self) -> None:
        """Ends what is still open, with an answer."""
        self.machine.go_away()
        for exchange in list(self._exchanges.values()):
            try:
                exchange.on_drain_over()
            except Exception:
                self._break(exchange.stream)
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _tell(note: Callable[[], None]) -> None:
    """Calls a method of an exchange that is over: nothing of it is left to end."""
    try:
        note()
    except Exception:
        log.exception("the end of a request over HTTP/2 failed")
