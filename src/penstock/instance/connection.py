"""One connection to the instance: frames in, frames out.

All frames of one read are processed before batches leave, so a burst becomes one batch. Replies of
one turn of the loop are written at once. While the other side does not read, nothing more is read
from it, and answers that may have no end must wait (`full`): so replies in memory are bounded by
the requests that were accepted.

A torn frame ends the connection, and so does a frame that does not complete (`wire/frames.py`). Its
requests are then cancelled, because nobody can receive their answers, and the gateway sends them
again. No frame is sent that the other end would take for a torn one: an answer above its bound
becomes an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.clock import Clock
from penstock.errors import ModelError
from penstock.instance import replies
from penstock.instance.copy import Copy
from penstock.instance.in_flight_counts import InFlightCounts
from penstock.instance.request import ReplySink, Request
from penstock.wire import frames
from penstock.wire.frames import LOOK_S, StallWatch

if TYPE_CHECKING:
    from penstock.instance.adapters import AdapterCopy
    from penstock.instance.models.host import ModelHost

    AnyCopy = Copy | ModelHost | AdapterCopy

_LOG = logging.getLogger(__name__)
_FRAME_BYTES_MAX = frames.HEAD.size + frames.PAYLOAD_BYTES_MAX


class ConnectionHost(Protocol):
    """The parts of the instance that a connection uses."""

    copies: dict[int, AnyCopy]
    clock: Clock
    counts: InFlightCounts | None  #: None: only one gateway sends requests

    greeting: bytes

    def admits(self, peer: socket.socket) -> bool: ...
    def trusts(self, certificate: dict[str, Any]) -> bool: ...
    def control(self, connection: Connection, ident: int, payload: bytes) -> None: ...
    def connected(self, connection: Connection) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol, ReplySink):
    __slots__ = (
        "_decoder", "_host", "_looking", "_loop", "_out", "_requests", "_socket", "_stall",
        "_transport", "_until_taken", "full",
    )  # fmt: skip

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._decoder = frames.FrameDecoder(frames.TO_INSTANCE)
        self._stall = StallWatch(self._decoder)
        self._looking: asyncio.TimerHandle | None = None  #: set while a frame is incomplete
        self._transport: asyncio.Transport | None = None
        #: The plain socket, where no layer such as TLS is between it and us
        self._socket: socket.socket | None = None
        self._out: list[bytes] = []
        self.full = False
        self._until_taken: list[Callable[[], None]] = []
        self._requests: dict[int, tuple[AnyCopy, Request]] = {}
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        certificate = transport.get_extra_info("peercert")
        if certificate is not None:  # with TLS: only clients that show a certificate can connect
            if not self._host.trusts(certificate):
                self._transport.abort()
                return
            self.send(self._host.greeting)
            self._host.connected(self)
            return
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        if not self._host.admits(self._socket):
            self._transport.abort()
            return
        self._socket.setblocking(False)
        self._host.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._socket is not None:
            self._socket.close()
        self._out = []
        self._until_taken = []
        for copy, request in list(self._requests.values()):
            copy.cancel(request)
        counts = self._host.counts
        if counts is not None:
            for number in self.held():
                counts.ended(self, number)
            counts.gone(self)
        self._requests = {}
        self._host.disconnected(self)

    def pause_writing(self) -> None:
        self.full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        self.full = False
        waited, self._until_taken = self._until_taken, []
        for go_on in waited:
            go_on()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return  # a connection that was not admitted
        now = self._host.clock.monotonic()
        touched: set[AnyCopy] = set()
        try:
            for kind, flags, meta_bytes, ident, payload in self._decoder.feed(data):
                if kind == frames.INVOKE:
                    copy = self._invoke(ident, flags, meta_bytes, payload, now)
                    if copy is not None:
                        touched.add(copy)
                elif kind == frames.CANCEL:
                    held = self._requests.get(ident)
                    if held is not None:
                        held[0].cancel(held[1])
                elif kind == frames.PACE:
                    held = self._requests.get(ident)
                    if held is not None:
                        held[0].pace(held[1], waits=bool(flags & frames.WAIT))
                else:
                    self._host.control(self, ident, payload)
            if self._looking is None and not self._decoder.between_frames:
                self._looking = self._loop.call_later(LOOK_S, self._look)
        except frames.FrameError as error:
            _LOG.warning("connection closed: %s", error.message)
            if self._transport is not None:
                self._transport.abort()
            return
        finally:
            for copy in touched:
                copy.turn(now)

    def _look(self) -> None:
        """Checks whether the incomplete frame still makes progress."""
        self._looking = None
        if self._transport is None or self._decoder.between_frames:
            return
        if self._stall.look():
            _LOG.warning("connection closed: a frame that began did not come to its end")
            self._transport.abort()
        else:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _invoke(
        self, ident: int, flags: int, meta_bytes: int, payload: bytes, now: float
    ) -> AnyCopy | None:
        cut = 9 + meta_bytes
        if len(payload) < cut:
            raise frames.FrameError("an INVOKE is shorter than its head")
        if ident in self._requests:
            raise frames.FrameError(f"request {ident} came twice")
        number, deadline_ms, priority = frames.INVOKE_HEAD.unpack_from(payload)
        copy = self._host.copies.get(number)
        if copy is None:
            self.send(replies.returned_frame(ident, "unknown-copy"))
            return None
        deadline = now + deadline_ms / 1000 if deadline_ms else None
        meta = payload[9:cut]
        alone = bool(flags & frames.ALONE)
        request = Request(self, ident, meta, payload[cut:], now, deadline, priority, alone)
        self._requests[ident] = (copy, request)
        if self._host.counts is not None:
            self._host.counts.taken(self, number)
        try:
            copy.accept(request, now)
        except Exception as error:  # a bug that one request triggers must not end the others
            if not request.answered:
                copy.cancel(request)
                failed = replies.as_error(error, "taking the request")
                self.send(replies.error_frame(ident, failed))
        return copy

    # Methods of ReplySink

    def forget(self, ident: int) -> None:
        held = self._requests.pop(ident, None)
        if held is not None and self._host.counts is not None:
            self._host.counts.ended(self, held[0].number)

    def held(self) -> list[int]:
        """The copy of each request that is not answered."""
        return [copy.number for copy, _ in self._requests.values()]

    def when_taken(self, go_on: Callable[[], None]) -> None:
        self._until_taken.append(go_on)

    def tell_counts(self) -> None:
        """The counts of requests in flight for others have changed, and no reply that could carry
        them is waiting."""
        news = self._host.counts.news(self) if self._host.counts is not None else b""
        if news:
            self.send(news)

    def send(self, frame: bytes) -> None:
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        if len(frame) > _FRAME_BYTES_MAX:
            frame = _too_large(frame)
        out.append(frame)

    def _flush(self) -> None:
        """Sends the waiting bytes through the socket itself, which releases the interpreter
        meanwhile.

        The write wakes the reader, which may take this processor at once. The transport would keep
        the interpreter's lock until it gets the processor back, while lane threads wait; this was
        measured as half of all locked time under load. Bytes that the socket does not take go
        through the transport.
        """
        out, self._out = self._out, []
        transport = self._transport
        if not out or transport is None:
            return
        if self._host.counts is not None:
            out.append(self._host.counts.news(self))
        data: bytes | memoryview = out[0] if len(out) == 1 else b"".join(out)
        if self._socket is not None and not transport.get_write_buffer_size():
            try:
                sent = self._socket.send(data)
            except OSError:
                sent = 0  # the socket is full, or broken: the transport finds out which
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
        transport.write(data)

    def close(self) -> None:
        """Sends the waiting bytes and ends the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()


def _too_large(frame: bytes) -> bytes:
    """The error that replaces an answer for which the gateway would end the connection."""
    ident = frames.HEAD.unpack_from(frame)[4]
    error = ModelError(
        "answer-too-large",
        f"the answer has {len(frame)} bytes, {frames.PAYLOAD_BYTES_MAX} at most",
        hint="Ask for less at once.",
    )
    return replies.error_frame(ident, error)
