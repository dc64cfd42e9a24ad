"""What the HTTP/2 connections of one listener share: limits, memory for bodies, turns of the loop.

`listener.py` extends this class with sockets and time; a connection reads and writes by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.clock import Clock
from penstock.core.request.body_budget import BodyBudget, UnfinishedBodies
from penstock.core.servers.server_size import connections_for
from penstock.gateway.http.listener_state import (
    TURNED_AWAY_MAX,
    BodySender,
    limit_now,
)
from penstock.gateway.http.tls import TlsAcceptor
from penstock.wire.http2.spec import Http2Spec

log = logging.getLogger(__name__)


class HeldConnection(Protocol):
    """A client's connection, as the listener sees it."""

    received: float  #: monotonic s of the last read

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""

    def check(self, now: float) -> None:
        """Ends whatever takes too long."""

    def flush(self) -> None:
        """Writes what there is."""

    def drain(self) -> None:
        """Lets the client go on elsewhere; ends once its streams have ended."""

    def stop(self) -> None:
        """Ends what is still open, with an answer."""

    def abort(self) -> None:
        """Disconnects the client."""


class Http2Shared(Protocol):
    """What connections and their exchanges use of what they share."""

    spec: Http2Spec
    monotonic: Callable[[], float]
    head_timeout_s: float  #: for a client's preface

    def admit(self, connection: HeldConnection) -> bool:
        """Counts a new connection. False: there are too many, or the server stops."""

    def forget(self, connection: HeldConnection) -> None: ...

    def flush_soon(self, connection: HeldConnection) -> None:
        """It is flushed at the end of this turn of the loop."""

    def take(self, sender: BodySender, size: int) -> bool:
        """Takes memory for a part of a body. False: there is no room."""

    def give(self, size: int) -> None:
        """Gives back what `take` took."""

    def unfinished(self, sender: BodySender, size: int) -> None:
        """The body of `sender` has `size` bytes so far; the rest comes in a later read."""

    def finished(self, sender: BodySender, peer: str) -> None:
        """Its body is complete, or not wanted any more. Idempotent."""


class Http2ListenerState:
    """The state of one listener."""

    def __init__(
        self,
        clock: Clock,
        bodies: BodyBudget,
        *,
        spec: Http2Spec,
        connections_max: int,
        head_timeout_s: float,
    ) -> None:
        """
        Args:
            bodies: the budget of all doors of this process; here half of it may be taken.
            head_timeout_s: for a client's preface.
        """
        self.spec = spec
        self.monotonic = clock.monotonic
        self.head_timeout_s = head_timeout_s
        self.bodies = bodies
        self.connections: set[HeldConnection] = set()
        self.tls: TlsAcceptor | None = None  #: its handshakes count as connections; None: no TLS
        self.draining = False
        self.empty = asyncio.Event()  #: while it drains: the last connection has ended
        self._bodies_bytes = 0  #: of the budget
        self._unfinished: UnfinishedBodies[BodySender] = UnfinishedBodies()
        self._connections_max = connections_for(limit_now(), connections_max)
        self._unflushed: list[HeldConnection] = []

    # For connections

    def admit(self, connection: HeldConnection) -> bool:
        """Counts a new connection. False: there are too many, or the server stops."""
        room = len(self.connections) < self._connections_max and not self.draining
        self.connections.add(connection)
        if self.room() < 0:
            connection.abort()
        return room

    def forget(self, connection: HeldConnection) -> None:
        self.connections.discard(connection)
        if self.draining and not self.connections:
            self.empty.set()

    def flush_soon(self, connection: HeldConnection) -> None:
        """It is flushed at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            try:
                connection.flush()
            except Exception:
                self.cut_failed(connection)

    def cut_failed(self, connection: HeldConnection) -> None:
        """An exception that is being handled ends its connection and no other."""
        log.exception("an HTTP/2 connection failed: it is cut")
        try:
            connection.abort()
        except Exception:
            log.exception("cutting an HTTP/2 connection failed")

    def room(self) -> int:
        pending = len(self.tls) if self.tls is not None else 0
        return self._connections_max + TURNED_AWAY_MAX - len(self.connections) - pending

    # Memory for bodies

    def take(self, sender: BodySender, size: int) -> bool:
        """Takes memory for a part of a body. False: there is no room.

        `sender` itself may be refused to make room, even where this returns True."""
        if self._take(size):
            return True
        free = min(self.bodies.bytes_max // 2 - self._bodies_bytes, self.bodies.bytes_free)
        missing = size - free
        for one in self._unfinished.making_room(missing, sender.peer, now=self.monotonic()):
            log.warning("no room for bodies: one of %s is cut", one.peer)
            try:
                one.refuse_for_room()
            except Exception:
                # Else it would be chosen for ever.
                log.exception("refusing a request for want of room failed")
                self._unfinished.ended(one, one.peer)
        return self._take(size)

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

    def unfinished(self, sender: BodySender, size: int) -> None:
        """The body of `sender` has `size` bytes so far; the rest comes in a later read."""
        self._unfinished.grown(sender, sender.peer, size, now=self.monotonic())

    def finished(self, sender: BodySender, peer: str) -> None:
        """Its body is complete, or not wanted any more. Idempotent."""
        self._unfinished.ended(sender, peer)
