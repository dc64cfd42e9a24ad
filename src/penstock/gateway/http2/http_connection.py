"""An HTTP/2 connection of an HTTP port, beside those of HTTP/1.1."""

from __future__ import annotations

from penstock.gateway.http2.connection import Http2Protocol
from penstock.gateway.http2.exchange import Http2Carrier, Http2Exchange
from penstock.gateway.http2.http_port import HttpPort
from penstock.gateway.http2.http_requests import HttpRequestStream
from penstock.wire.http2.events import RequestReceived


class HttpOverHttp2(Http2Protocol):
    """The protocol of a client that speaks HTTP/2 (see `OpenConnection`)."""

    __slots__ = ("_port",)

    def __init__(self, port: HttpPort) -> None:
        super().__init__(port, self._open)
        self._port = port

    def _open(self, connection: Http2Carrier, request: RequestReceived) -> Http2Exchange:
        stream = HttpRequestStream(connection, request, self._port)
        stream.read_head()
        return stream

    @property
    def idle_s_max(self) -> float:
        return self._port.http.limits.keep_alive_s

    def stop(self) -> None:
        """Accepts no further request; ends once those in flight are answered."""
        self.drain()
