"""Connections to one region: kept for the next request, opened when none is free.

A kept connection may have been closed by the region just when it was used again. Then nothing of an
answer has come, and a request that may be sent twice is sent once more, over a new connection,
before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.clock import Clock
from penstock.errors import CallerError
from penstock.orchestrator.upstream import LOST, Asker, Headers, UpstreamConnection

#: A round trip around the earth takes 0.3 s, and a handshake two of them.
CONNECT_S_MAX: Final = 1.5
#: Servers here close idle connections after 75 s; ours go before that.
IDLE_S_MAX: Final = 45.0
IDLE_MAX: Final = 256

UNREACHABLE: Final = "region-unreachable"
UNTRUSTED: Final = "certificate-untrusted"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a region listens."""

    host: str
    port: int
    tls: bool
    certificate: Path | None = None  #: of the authority that vouches for it; None: the system's

    @property
    def authority(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode()


def address_of(url: str, certificate: Path | None = None) -> Address:
    """Raises CallerError (`regions-invalid`) for what is no server's address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise CallerError(
            "regions-invalid",
            f"{url!r} is not the address of a region",
            hint="Write it like https://eu.example:8080, without a path.",
        )
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, certificate)


def tls_to(address: Address) -> ssl.SSLContext | None:
    """What checks the region's certificate. Raises CallerError (`tls-unusable`)."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.certificate)
    except (OSError, ssl.SSLError) as cause:
        raise CallerError(
            "tls-unusable",
            f"{address.certificate} can't be used: {cause}",
            hint="Give the PEM certificate of the region, or of the authority that signed it.",
        ) from cause
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Exchange:
    """One request and its answer, over one or, where the first was stale, two connections."""

    __slots__ = ("_asker", "_head_only", "_pool", "_repeatable", "_request", "connection")

    def __init__(
        self, pool: RegionPool, asker: Asker, request: bytes, *, head_only: bool, repeatable: bool
    ) -> None:
        self._pool = pool
        self._asker: Asker | None = asker
        self._request = request
        self._head_only = head_only
        self._repeatable = repeatable
        self.connection: UpstreamConnection | None = None

    @property
    def cancelled(self) -> bool:
        return self._asker is None

    def begin(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        connection.ask(self, self._request, head_only=self._head_only)

    def cancel(self) -> None:
        """Whoever asked hears nothing more. Idempotent."""
        self._asker = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    def pause(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        if self.connection is not None:
            self.connection.resume()

    # Asker, of the connection

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        if self._asker is not None:
            self._asker.on_head(status, headers, length)

    def on_body(self, data: bytes) -> None:
        if self._asker is not None:
            self._asker.on_body(data)

    def on_end(self) -> None:
        self.connection = None
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.on_end()

    def on_lost(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        stale = connection is not None and connection.used and not connection.answered_bytes
        if stale and self._repeatable and self._asker is not None:
            self._repeatable = False
            self._pool.open_for(self)
            return
        self.fail(reason)

    def fail(self, reason: str) -> None:
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.on_lost(reason)


class RegionPool:
    """The connections to one region."""

    def __init__(self, address: Address, clock: Clock) -> None:
        """Raises CallerError (`tls-unusable`)."""
        self.address = address
        self.fault = ""  #: why the last connection could not be opened; empty: it could
        self._tls = tls_to(address)
        self._monotonic = clock.monotonic
        self._idle: deque[UpstreamConnection] = deque()  #: the last used is last
        self._open: set[UpstreamConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()

    def ask(
        self, asker: Asker, request: bytes, *, head_only: bool = False, repeatable: bool = True
    ) -> Exchange:
        """Sends a request; `asker` hears of it from later callbacks only.

        Args:
            repeatable: it may be computed twice. One that may not is sent over a new connection.
        """
        exchange = Exchange(self, asker, request, head_only=head_only, repeatable=repeatable)
        if repeatable:
            while self._idle:
                connection = self._idle.pop()
                if not connection.ended:
                    exchange.begin(connection)
                    return exchange
        self.open_for(exchange)
        return exchange

    def open_for(self, exchange: Exchange) -> None:
        """Opens a connection for an exchange, which is told if that fails."""
        task = asyncio.get_running_loop().create_task(self._connect(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        address = self.address
        connection = UpstreamConnection(self._freed)
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=address.host if self._tls is not None else None,
                )
        except ssl.SSLCertVerificationError as error:
            self.fault = f"its certificate is not trusted: {error.verify_message}"
            exchange.fail(UNTRUSTED)
            return
        except (OSError, TimeoutError) as error:
            words = str(error) or "no answer in time"
            self.fault = f"{address.authority.decode()} can't be reached: {words}"
            exchange.fail(UNREACHABLE)
            return
        self.fault = ""
        self._open.add(connection)
        if exchange.cancelled:
            self._freed(connection)
        elif connection.ended:
            exchange.fail(LOST)
        else:
            exchange.begin(connection)

    def _freed(self, connection: UpstreamConnection) -> None:
        if connection.ended:
            self._open.discard(connection)
            if connection in self._idle:
                self._idle.remove(connection)
            return
        connection.idle_since = self._monotonic()
        self._idle.append(connection)
        if len(self._idle) > IDLE_MAX:
            self._idle.popleft().abort()

    def tidy(self) -> None:
        """Closes what nobody has used for long. Call it each few seconds."""
        before = self._monotonic() - IDLE_S_MAX
        while self._idle and self._idle[0].idle_since < before:
            self._idle.popleft().abort()

    async def close(self) -> None:
        """Ends all connections; what was asked over them is told so."""
        for task in list(self._opening):
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)
