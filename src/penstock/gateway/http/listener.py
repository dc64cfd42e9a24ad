"""The HTTP server: one listening socket, its connections, their doors and their clock.

A door is found by path prefix; what no door takes goes to the fallback (an ASGI application behind
`asgi.AsgiDoor`). One timer serves all connections: it looks at each about once a second, so
timeouts cost nothing per request. What every answer carries (date, request id's prefix) is put
together here once per tick.

The limit on open files and sockets of this process; `core/request/body_budget.py` says who gets
them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from functools import partial
from typing import Protocol

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget, UnfinishedBodies, connections_for
from penstock.core.request.head_check import HeadCheck
from penstock.core.request.host_gate import HostGate
from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.http.answer_pipeline import AnswerPipeline
from penstock.gateway.http.body_budget import HoldingPipeline
from penstock.gateway.http.call import Call, Door
from penstock.gateway.http.connection import FIELDS, HttpConnection
from penstock.gateway.http.known_heads import KnownHeads
from penstock.gateway.http.tls import TlsAcceptor
from penstock.gateway.request_id import RequestIds
from penstock.wire.aws.errors import AwsError


def raise_limit() -> int:
    """Asks for all descriptors that this process may have; returns how many it has.

    The soft limit is low for the sake of programs that use select(); none of ours does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as cause:  # a system may refuse an infinite one
            log.warning("the limit on open files stays at %d: %s", soft, cause)
            return soft
    return hard


def limit_now() -> int | None:
    """Descriptors that this process may have open; None = any number."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


log = logging.getLogger(__name__)

TICK_S_MAX = 1.0
#: When it stops, for the first request of a connection that was accepted just before.
UNUSED_S = 0.1
#: Spellings of header names that are remembered; a stranger can only make us forget and learn
#: again.
SPELLINGS_MAX = 4096
SPELLING_BYTES_MAX = 128
#: What all clients together may leave unread; beyond it those that hold most of it are cut.
UNREAD_BYTES_MAX = 512 << 20
#: Connections that wait in the kernel to be accepted: a burst of new clients must not see resets.
BACKLOG = 2048
#: Connections over the limit that are kept until they have read why they are not served.
TURNED_AWAY_MAX = 32
#: A body below 10,000 bytes mostly comes with its head.
LENGTH_DIGITS = 5


class Authenticator(Protocol):
    """Who may come in. A request is shown twice: its head, and then all of it."""

    def check_head(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """Raises PenstockError or AwsError where the head alone shows that it may not pass.

        Called once the head is there, so that strangers can't make the server hold bodies: no
        credentials, malformed ones, an unknown key, an old date. Returns for those that the body
        must still prove.
        """

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        """Raises PenstockError or AwsError for a whole request that may not pass."""


class Denied(CallerError):
    """Not authenticated or not allowed; `code` is AWS's name for it, which clients match on."""

    status_default = 403


class HttpListener:
    """Accepts connections and answers what they need to know. Made once per gateway process."""

    def __init__(
        self,
        *,
        limits: LimitConfig,
        clock: Clock,
        ids: RequestIds,
        doors: Sequence[tuple[bytes, Door]],
        fallback: Door,
        authenticator: Authenticator | None = None,
        interest: Iterable[bytes] = (),
        bodies: BodyBudget | None = None,
        gate: HostGate | None = None,
    ) -> None:
        """
        Args:
            doors: (path prefix, door), tried in order.
            fallback: takes every other path, and what a door hands back.
            interest: lower-case names of headers that doors want to find in `Call.rare`.
            bodies: what all doors of this process may hold; None = one of the limits' size.
            gate: which hosts and pages may call; None = loopback's names and no other pages.
        """
        self.head_check = HeadCheck(gate or HostGate())
        self.bodies = bodies or BodyBudget(limits.bodies_bytes_max)
        self.unfinished: UnfinishedBodies[HoldingPipeline] = UnfinishedBodies()
        self.limits = limits
        self.ids = ids
        self.doors = tuple(doors)
        self.fallback = fallback
        self.authenticator = authenticator
        #: None where each head has credentials of its own to show
        self.known_heads = KnownHeads() if authenticator is None else None
        self.monotonic = clock.monotonic
        self.now = clock.monotonic()  #: of the last tick: exact enough for timeouts
        self.draining = False
        #: of lengths that are looked at when they are announced, and not as the body comes
        self.length_digits = min(LENGTH_DIGITS, len(str(limits.body_bytes_max)))
        #: what descriptors allow may be less than was asked for
        self.connections_max = connections_for(limit_now(), limits.connections_max)
        if self.connections_max < limits.connections_max:
            log.warning(
                "at most %d HTTP connections: the limit on open files is %d (ulimit -n)",
                self.connections_max,
                limit_now(),
            )
        self.tls: TlsAcceptor | None = None
        self.connections: set[HttpConnection] = set()
        self._unflushed: list[AnswerPipeline] = []
        self._clock = clock
        self._interest = {name: name for name in (*FIELDS, *interest)}
        self.fields: dict[bytes, bytes | None] = {}  #: spelling on the wire -> name, None = unused
        self._dated_at = -1
        self.common_head = b""
        self._date_head()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        shortest_s = min(limits.head_timeout_s, limits.body_timeout_s, limits.keep_alive_s)
        self._tick_s = min(TICK_S_MAX, shortest_s / 4)

    async def start(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        held: Sequence[socket.socket] = (),
    ) -> int:
        """Listens; returns the port, which differs from `port` when that is 0.

        Args:
            reuse_port: beside other processes at this port.
            held: sockets that listen there already and outlive this listener, which accepts at
                them: in place of its own, or besides where the port is shared.

        Raises:
            CallerError: port-in-use, address-unknown, port-forbidden.
        """
        loop = asyncio.get_running_loop()
        try:
            if tls is not None:
                self.tls = TlsAcceptor(tls, lambda: HttpConnection(self), room=self._room)
                for one in held:
                    self.tls.accept_at(one.dup())
                if reuse_port or not held:
                    port = self.tls.listen(host, port, backlog=BACKLOG, reuse_port=reuse_port)
            else:
                make = partial(HttpConnection, self)
                for one in held:
                    self._servers.append(
                        await loop.create_server(make, sock=one.dup(), backlog=BACKLOG)
                    )
                if reuse_port or not held:
                    server = await loop.create_server(
                        make, host, port, reuse_port=reuse_port or None, backlog=BACKLOG
                    )
                    self._servers.append(server)
                    port = int(server.sockets[0].getsockname()[1])
        except OSError as cause:
            self._stop_accepting()
            raise listen_error(cause, host, port) from cause
        self._tick()
        return port

    async def start_at(self, path: str) -> None:
        """Listens at a Unix socket that only this user may open. Raises OSError."""
        loop = asyncio.get_running_loop()
        make = partial(HttpConnection, self)
        self._servers.append(await loop.create_unix_server(make, path, backlog=BACKLOG))
        os.chmod(path, 0o600)
        self._tick()

    def _room(self) -> int:
        """Connections that may still come; below 0 some are to be turned away without a word."""
        pending = len(self.tls) if self.tls is not None else 0
        return self.connections_max + TURNED_AWAY_MAX - len(self.connections) - pending

    async def stop(self, timeout_s: float) -> None:
        """Takes no new connection, lets the requests in flight end, then cuts what is left."""
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
        """`unused`: also those that have asked nothing yet, though their request may be coming."""
        for connection in list(self.connections):
            if unused or connection.received:
                connection.stop()

    def _stop_accepting(self) -> None:
        for server in self._servers:
            server.close()
        if self.tls is not None:
            self.tls.close()

    def admit(self, connection: HttpConnection) -> bool:
        """Counts a new connection in; False if there are too many, and it is to be told so.

        Telling takes a socket as well: beyond `TURNED_AWAY_MAX` of them it is closed at once.
        """
        room = len(self.connections) < self.connections_max
        self.connections.add(connection)
        if self._room() < 0:
            connection.abort()
        return room

    def forget(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)

    def may_have_room(self, size: int, peer: str) -> bool:
        """Whether a body of `size` bytes that `peer` announces would fit as things are."""
        missing = self.bodies.missing(size)
        return not missing or bool(self.unfinished.making_room(missing, peer, now=self.monotonic()))

    def make_room(self, size: int, peer: str) -> None:
        """Cuts unfinished bodies so that `size` bytes of a body of `peer` fit, if that is fair."""
        missing = self.bodies.missing(size)
        for connection in self.unfinished.making_room(missing, peer, now=self.monotonic()):
            log.warning("no room for bodies: one of %s is cut", connection.peer)
            connection.refuse_for_room()

    def flush_soon(self, connection: AnswerPipeline) -> None:
        """The connection has made output: it is written at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> None:
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()

    def learn_field(self, name: bytes) -> bytes | None:
        """What a header name is to us, remembered under the spelling that came."""
        field = self._interest.get(name.lower())
        if len(name) <= SPELLING_BYTES_MAX:
            if len(self.fields) >= SPELLINGS_MAX:
                self.fields.clear()
            self.fields[name] = field
        return field

    def hand_over(self, call: Call) -> None:
        """A door did not want this path: the fallback takes it."""
        call.front_door = self.fallback
        if not self.fallback.handle(call):
            call.answer_error(CallerError("not-found", "Nothing is served here.", status=404))

    def head_error(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> PenstockError | None:
        """None if a request with this head may go on to its body."""
        authenticator = self.authenticator
        if authenticator is None:
            return None
        path, _, query = url.partition(b"?")
        text = method.decode("latin-1")
        return _denial(lambda: authenticator.check_head(text, path, query, headers), url)

    def authentication_error(self, call: Call) -> PenstockError | None:
        """None if the whole request may pass."""
        authenticator = self.authenticator
        if authenticator is None:
            return None
        method = call.method.decode("latin-1")
        return _denial(
            lambda: authenticator.check(method, call.path, call.query, call.headers, call.body),
            call.url,
        )

    def _tick(self) -> None:
        self.now = now = self.monotonic()
        self._date_head()
        for connection in list(self.connections):
            connection.check(now)
        self._bound_unread()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _bound_unread(self) -> None:
        """Each connection has a bound of its own; together they must not fill the memory either."""
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

    def _date_head(self) -> None:
        wall_s = int(self._clock.wall())
        if wall_s != self._dated_at:
            self._dated_at = wall_s
            date = formatdate(wall_s, usegmt=True).encode()
            prefix = self.ids.prefix_bytes
            self.common_head = (
                b"date: " + date + b"\r\nserver: penstock\r\nx-amzn-requestid: " + prefix
            )


def _denial(check: Callable[[], None], url: bytes) -> PenstockError | None:
    try:
        check()
    except PenstockError as error:
        return error
    except AwsError as error:
        return Denied(error.code, error.message, status=error.status)
    except Exception:
        log.exception("authentication failed on %s", url[:256])
        return InternalError("internal", "Authentication failed inside Penstock.")
    return None


def listen_error(cause: OSError, host: str, port: int) -> CallerError:
    """What a person can do about an address that can't be listened on."""
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
