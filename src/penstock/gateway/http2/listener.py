"""The HTTP/2 server: its listening sockets, its connections, and one timer for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial

from penstock.clock import Clock
from penstock.core.request.body_budget import BodyBudget
from penstock.gateway.http.listener import BACKLOG, TICK_S_MAX, UNREAD_BYTES_MAX, listen_error
from penstock.gateway.http.tls import TlsAcceptor
from penstock.gateway.http2.connection import Door, Http2Protocol
from penstock.gateway.http2.listener_state import HeldConnection, Http2ListenerState
from penstock.wire.http2.spec import Http2Spec

log = logging.getLogger(__name__)


class Http2Listener(Http2ListenerState):
    """Accepts connections and checks their timeouts. `start`, then `stop`."""

    def __init__(
        self,
        door: Door,
        clock: Clock,
        bodies: BodyBudget,
        *,
        spec: Http2Spec,
        connections_max: int,
        head_timeout_s: float,
        tick_s: float,
    ) -> None:
        """`tick_s`: s between checks, a second at most. The others as in `Http2ListenerState`."""
        super().__init__(
            clock,
            bodies,
            spec=spec,
            connections_max=connections_max,
            head_timeout_s=head_timeout_s,
        )
        self._door = door
        self._tick_s = min(TICK_S_MAX, tick_s)
        self._servers: tuple[asyncio.Server, ...] = ()
        self._timer: asyncio.TimerHandle | None = None

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, reuse_port: bool
    ) -> int:
        """Listens; returns the port. `reuse_port`: other processes listen at it too.

        Raises CallerError: port-in-use, address-unknown, port-forbidden.
        """
        make = partial(Http2Protocol, self, self._door)
        try:
            if tls is not None:
                self.tls = TlsAcceptor(tls, make, room=self.room)
                port = self.tls.listen(host, port, backlog=BACKLOG, reuse_port=reuse_port)
            else:
                server = await asyncio.get_running_loop().create_server(
                    make, host, port, reuse_port=reuse_port or None, backlog=BACKLOG
                )
                self._servers = (server,)
                port = int(server.sockets[0].getsockname()[1])
        except OSError as cause:
            self._stop_accepting()
            raise listen_error(cause, host, port) from cause
        self._tick()
        return port

    async def stop(self, timeout_s: float) -> None:
        """Lets clients go on elsewhere and calls in progress end, then cuts them. Idempotent."""
        self._stop_accepting()
        self.draining = True
        self._each(lambda connection: connection.drain())
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.empty.wait()
        self._each(lambda connection: connection.stop())
        await asyncio.sleep(0)
        self._each(lambda connection: connection.abort())  # what a client does not read is lost
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        if self.tls is not None:
            self.tls.close()

    def _each(self, act: Callable[[HeldConnection], None]) -> None:
        """One connection that fails is cut, and keeps none of the others from their turn."""
        for connection in list(self.connections):
            try:
                act(connection)
            except Exception:
                self.cut_failed(connection)

    # Time

    def _tick(self) -> None:
        # First, so that no failure below can end the timer of all connections.
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        now = self.monotonic()
        self._each(lambda connection: connection.check(now))
        self._bound_unread()

    def _bound_unread(self) -> None:
        """Each connection has limits of its own; this one keeps all together from filling the
        memory."""
        unread: list[tuple[int, HeldConnection]] = []
        self._each(lambda connection: unread.append((connection.unread_bytes, connection)))
        total = sum(size for size, _ in unread)
        if total <= UNREAD_BYTES_MAX:
            return
        unread.sort(key=lambda pair: pair[0], reverse=True)
        for size, connection in unread:
            log.warning("clients leave %d bytes unread: cut one with %d", total, size)
            try:
                connection.abort()
            except Exception:
                self.cut_failed(connection)
            total -= size
            if total <= UNREAD_BYTES_MAX:
                return
