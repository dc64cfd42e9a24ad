"""Which protocol the client of a new connection speaks: HTTP/1.1 or HTTP/2, at the same port.

With TLS, the two ends agree on it in the handshake (ALPN, RFC 7301). Without TLS, a client that
knows that this server speaks HTTP/2 begins with the connection preface (RFC 9113, 3.3 and 3.4):
`PRI` is no method of HTTP/1.1, and is reserved for this.
"""

from __future__ import annotations

import asyncio
from typing import Final

#: The beginning of HTTP/2's preface. `POST` and `PUT` begin with its first byte.
HTTP2_OPENING: Final = b"PRI"
_ALPN: Final = "h2"


def chose_http2(transport: asyncio.BaseTransport) -> bool:
    """Whether the handshake of a connection with TLS has agreed on HTTP/2."""
    tls = transport.get_extra_info("ssl_object")
    return tls is not None and tls.selected_alpn_protocol() == _ALPN


def is_too_short(data: bytes) -> bool:
    """Whether the first bytes of a connection can still become either protocol."""
    return len(data) < len(HTTP2_OPENING) and HTTP2_OPENING.startswith(data)


class ShortOpening(asyncio.Protocol):
    """Stands in for a connection whose first bytes are too few; all else stays its own."""

    def __init__(
        self, connection: asyncio.Protocol, transport: asyncio.Transport, data: bytes
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._data = data

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not is_too_short(self._data):
            self._transport.set_protocol(self._connection)
            self._connection.data_received(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
