"""The HTTP server: its listening sockets, and one timer for all connections.

The timer checks each connection about once per second, so timeouts cost nothing per request.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from functools import partial

from penstock.errors import CallerError
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.listener_state import ListenerState
from penstock.gateway.http.tls import TlsAcceptor

log = logging.getLogger(__name__)

TICK_S_MAX = 1.0
#: While it stops: time for the first request of a connection that was just accepted, in s.
UNUSED_S = 0.1
#: Unread bytes of all clients together; beyond it those that hold most of them are disconnected.
UNREAD_BYTES_MAX = 512 << 20
#: Connections that wait in the kernel to be accepted: a burst of new clients must not be reset.
BACKLOG = 2048


class HttpListener(ListenerState):
    """Accepts connections and checks their timeouts. There is one per gateway process."""

    _servers: tuple[asyncio.Server, ...] = ()
    _timer: asyncio.TimerHandle | None = None

    async def start(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        held: Sequence[socket.socket] = (),
    ) -> int:
        """Listens; returns the port, which differs from `port` if that is 0.

        Args:
            reuse_port: other processes listen at the same port.
            held: sockets that listen there already and outlive this listener, which accepts at
                them: in place of its own, or besides its own if the port is shared.

        Raises:
            CallerError: port-in-use, address-unknown, port-forbidden.
        """
        loop = asyncio.get_running_loop()
        try:
            if tls is not None:
                self.tls = TlsAcceptor(tls, lambda: HttpConnection(self), room=self.room)
                for one in held:
                    self.tls.accept_at(one.dup())
                if reuse_port or not held:
                    port = self.tls.listen(host, port, backlog=BACKLOG, reuse_port=reuse_port)
            else:
                make = partial(HttpConnection, self)
                for one in held:
                    server = await loop.create_server(make, sock=one.dup(), backlog=BACKLOG)
                    self._servers += (server,)
                if reuse_port or not held:
                    server = await loop.create_server(
                        make, host, port, reuse_port=reuse_port or None, backlog=BACKLOG
                    )
                    self._servers += (server,)
                    port = int(server.sockets[0].getsockname()[1])
        except OSError as cause:
            self._stop_accepting()
            raise listen_error(cause, host, port) from cause
        self._tick()
        return port

    async def start_at(self, path: str) -> None:
        """Listens at a Unix socket that only this user can open. Raises OSError."""
        loop = asyncio.get_running_loop()
        make = partial(HttpConnection, self)
        self._servers += (await loop.create_unix_server(make, path, backlog=BACKLOG),)
        os.chmod(path, 0o600)
        self._tick()

    async def stop(self, timeout_s: float) -> None:
        """Accepts no new connection, lets the requests in flight end, then disconnects the rest."""
        self.draining = True
        self._stop_accepting()
        began = self.monotonic()
        self._stop_connections(unused=timeout_s < UNUSED_S)
        while self.connections and self.monotonic() < began + timeout_s:
            await asyncio.sleep(min(0.02, timeout_s))
            self._stop_connections(unused=self.monotonic() >= began + UNUSED_S)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()

    def _stop_connections(self, *, unused: bool) -> None:
        """`unused`: also connections that have sent no request yet, though one may be on its
        way."""
        for connection in list(self.connections):
            if unused or connection.received:
                connection.stop()

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        if self.tls is not None:
            self.tls.close()

    def _tick(self) -> None:
        self.now = now = self.monotonic()
        self.date_head()
        for connection in list(self.connections):
            try:
                connection.check(now)
            except Exception:  # a bug of one must not end the timer of all
                log.exception("checking a connection failed: it is cut")
                connection.abort()
        self._bound_unread()
        limits = self.limits
        shortest_s = min(limits.head_timeout_s, limits.body_timeout_s, limits.keep_alive_s)
        tick_s = min(TICK_S_MAX, shortest_s / 4)
        self._timer = asyncio.get_running_loop().call_later(tick_s, self._tick)

    def _bound_unread(self) -> None:
        """Each connection has a limit of its own; this one keeps all together from filling the
        memory."""
        unread = [(each.unread_bytes, each) for each in self.connections]
        total = sum(size for size, _ in unread)
        if total <= UNREAD_BYTES_MAX:
            return
        unread.sort(key=lambda pair: pair[0], reverse=True)
        for size, connection in unread:
            log.warning("clients leave %d bytes unread: cut one with %d", total, size)
            connection.abort()
            total -= size
            if total <= UNREAD_BYTES_MAX:
                return


def listen_error(cause: OSError, host: str, port: int) -> CallerError:
    """The error for an address that can't be listened on, with what a person can do about it."""
    if cause.errno == errno.EADDRINUSE:
        return CallerError(
            "port-in-use",
            f"Another program listens on {host}:{port}.",
            hint="Stop it, or choose another port; 0 takes any free one.",
        )
    if cause.errno in (errno.EACCES, errno.EPERM):
        return CallerError(
            "port-forbidden",
            f"This user may not listen on {host}:{port}.",
            hint="Choose a port above 1023.",
        )
    return CallerError(
        "address-unknown",
        f"Can't listen on {host}:{port}: {cause.strerror or cause}.",
        hint="Give an address of this machine, or 127.0.0.1.",
    )
