"""The listener of an HTTP port, for clients of HTTP/1.1 and of HTTP/2."""

from __future__ import annotations

import asyncio
from functools import cached_property

from penstock.gateway.http.listener import HttpListener
from penstock.gateway.http2.http_connection import HttpOverHttp2
from penstock.gateway.http2.http_port import HttpPort


class HttpServerListener(HttpListener):
    """A connection begins as one of HTTP/1.1, which finds out what its client speaks."""

    speaks_http2 = True

    def http2_protocol(self) -> asyncio.Protocol:
        return HttpOverHttp2(self._http2)

    def send_away(self) -> None:
        """Clients of HTTP/2 are told to begin requests elsewhere; those in flight here go on.

        The server will stop. HTTP/1.1 has no word for it.
        """
        for connection in list(self.connections):
            if isinstance(connection, HttpOverHttp2):
                connection.drain()

    @cached_property
    def _http2(self) -> HttpPort:
        return HttpPort(self)
