"""An HTTP/2 connection of an HTTP port, beside those of HTTP/1.1.

Beginnings of frames and of header blocks count against the budget for bodies like unfinished heads
over HTTP/1.1, and a header block must be complete in the same time.
"""

from __future__ import annotations

import logging

from penstock.gateway.http2.connection import Http2Protocol
from penstock.gateway.http2.exchange import Http2Carrier, Http2Exchange
from penstock.gateway.http2.http_port import HttpPort
from penstock.gateway.http2.http_requests import HttpRequestStream, KnownRequests
from penstock.wire.http2.events import RequestReceived
from penstock.wire.http2.frames import ENHANCE_YOUR_CALM

log = logging.getLogger(__name__)


class HttpOverHttp2(Http2Protocol):
    """The protocol of a client that speaks HTTP/2 (see `OpenConnection`)."""

    __slots__ = ("_block_since", "_held", "_known", "_port")

    def __init__(self, port: HttpPort) -> None:
        super().__init__(port, self._open)
        self._port = port
        self._known = KnownRequests()
        self._held = 0  #: bytes of the budget
        self._block_since: float | None = None  #: monotonic s; None: no header block is unfinished

    def _open(self, connection: Http2Carrier, request: RequestReceived) -> Http2Exchange:
        stream = HttpRequestStream(connection, request, self._port)
        stream.read_head(self._known)
        return stream

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        machine = self.machine
        unfinished = machine.unfinished_bytes
        if unfinished != self._held:
            self._hold(unfinished)
            if not machine.in_header_block:
                self._block_since = None
            elif self._block_since is None:
                self._block_since = self.received

    def _hold(self, size: int) -> None:
        """Accounts for the beginning of a frame or of a header block."""
        more = size - self._held
        if more > 0 and not self._port.take(self, more):
            self._give_up("no room for the rest of a frame")
        elif self._transport.is_closing():  # it was cut to make room for itself
            self._port.give(max(0, more))
        else:
            if more < 0:
                self._port.give(-more)
            self._held = size
            if size:
                self._port.unfinished(self, size)
            else:
                self._port.finished(self, self.account)

    def _let_go(self) -> None:
        if self._held:
            self._port.give(self._held)
            self._port.finished(self, self.account)
            self._held = 0

    def _give_up(self, words: str) -> None:
        """What comes next can't be read: the connection ends, with all of its streams."""
        log.warning("an HTTP/2 connection ends: %s", words)
        self._let_go()
        self._block_since = None
        self.machine.go_away(ENHANCE_YOUR_CALM, words)
        self.flush()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        super().connection_lost(exc)

    # As the sender of an unfinished frame

    @property
    def peer(self) -> str:
        """The client whose connections share one account for bodies."""
        return self.account

    def refuse_for_room(self) -> None:
        self._give_up("others need the room of an unfinished frame")

    # For the listener

    @property
    def idle_s_max(self) -> float:
        return self._port.http.limits.keep_alive_s

    def check(self, now: float) -> None:
        since = self._block_since
        if since is not None and now - since >= self.listener.head_timeout_s:
            self._give_up("a header block took too long")
            return
        if self.machine.cut_lingering(now):
            self.flush_soon()
        super().check(now)

    def stop(self) -> None:
        """Accepts no further request; ends once those in flight are answered."""
        self.drain()
