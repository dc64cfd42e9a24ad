"""The HTTP/2 server: its listening sockets, its connections, and one timer for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial

from penstock.clock import Clock
from penstock.core.request.body_budget import BodyBudget, UnfinishedBodies
from penstock.core.servers.server_size import connections_for
from penstock.gateway.http.listener import BACKLOG, TICK_S_MAX, UNREAD_BYTES_MAX, listen_error
from penstock.gateway.http.listener_state import TURNED_AWAY_MAX, limit_now
from penstock.gateway.http.tls import TlsAcceptor
from penstock.gateway.http2.connection import Http2Protocol
from penstock.gateway.http2.exchange import Http2Exchange
from penstock.wire.http2.events import RequestReceived
from penstock.wire.http2.spec import Http2Spec

log = logging.getLogger(__name__)

#: Makes the exchange of a request. One that it has answered already is over.
Door = Callable[[Http2Protocol, RequestReceived], Http2Exchange]


class Http2Listener:
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
        """
        Args:
            bodies: the budget of all doors of this process; here half of it may be taken.
            tick_s: s between checks, a second at most.
        """
        self.door = door
        self.spec = spec
        self.monotonic = clock.monotonic
        self.head_timeout_s = head_timeout_s
        self.bodies = bodies
        self.connections: set[Http2Protocol] = set()
        self._bodies_bytes = 0  #: of the budget
        self._unfinished: UnfinishedBodies[Http2Exchange] = UnfinishedBodies()
        self._connections_max = connections_for(limit_now(), connections_max)
        self._tick_s = min(TICK_S_MAX, tick_s)
        self._servers: tuple[asyncio.Server, ...] = ()
        self._tls: TlsAcceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unflushed: list[Callable[[], None]] = []
        self._draining = False
        self._empty = asyncio.Event()  #: while it stops: the last connection has ended

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, reuse_port: bool
    ) -> int:
        """Listens; returns the port. `reuse_port`: other processes listen at it too.

        Raises CallerError: port-in-use, address-unknown, port-forbidden.
        """
        make = partial(Http2Protocol, self)
        try:
            if tls is not None:
                self._tls = TlsAcceptor(tls, make, room=self._room)
                port = self._tls.listen(host, port, backlog=BACKLOG, reuse_port=reuse_port)
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
        self._draining = True
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
        for connection in list(self.connections):
            connection.stop()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()  # what a client does not read is lost
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        if self._tls is not None:
            self._tls.close()

    # For connections

    def admit(self, connection: Http2Protocol) -> bool:
        """Counts a new connection. False: there are too many, or the server stops."""
        room = len(self.connections) < self._connections_max and not self._draining
        self.connections.add(connection)
        if self._room() < 0:
            connection.abort()
        return room

    def forget(self, connection: Http2Protocol) -> None:
        self.connections.discard(connection)
        if self._draining and not self.connections:
            self._empty.set()

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """`flush` is called at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(flush)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for flush in unflushed:
            flush()

    def _room(self) -> int:
        pending = len(self._tls) if self._tls is not None else 0
        return self._connections_max + TURNED_AWAY_MAX - len(self.connections) - pending

    # Memory for bodies

    def take(self, sender: Http2Exchange, size: int) -> bool:
        """Takes memory for a part of a body. False: there is no room, or this sender itself was
        refused to make room for others."""
        if self._take(size):
            return True
        free = min(self.bodies.bytes_max // 2 - self._bodies_bytes, self.bodies.bytes_free)
        missing = size - free
        for one in self._unfinished.making_room(missing, sender.peer, now=self.monotonic()):
            log.warning("no room for bodies: one of %s is cut", one.peer)
            one.refuse_for_room()
        return sender.connection is not None and self._take(size)

    def _take(self, size: int) -> bool:
        # The other doors need room as well.
        if self._bodies_bytes + size > self.bodies.bytes_max // 2 or not self.bodies.take(size):
            return False
        self._bodies_bytes += size
        return True

    def give(self, size: int) -> None:
        """Gives back what `take` took."""
        self.bodies.give(size)
        self._bodies_bytes -= size

    def unfinished(self, sender: Http2Exchange, size: int) -> None:
        """The body of `sender` has `size` bytes so far; the rest comes in a later read."""
        self._unfinished.grown(sender, sender.peer, size, now=self.monotonic())

    def finished(self, sender: Http2Exchange, peer: str) -> None:
        """Its body is complete, or not wanted any more. Idempotent."""
        self._unfinished.ended(sender, peer)

    # Time

    def _tick(self) -> None:
        now = self.monotonic()
        for connection in list(self.connections):
            connection.check(now)
        self._bound_unread()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _bound_unread(self) -> None:
        """Each connection has limits of its own; this one keeps all together from filling the
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
