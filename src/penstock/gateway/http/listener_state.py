"""What the connections of one listener share: limits, doors, memory for bodies, authentication.

A door is found by path prefix. A request that no door takes goes to the fallback (an ASGI
application behind `asgi.AsgiDoor`). The headers of every answer (date, beginning of the request id)
are made here once per tick. `listener.py` extends this class with sockets and time; a connection
reads and writes by itself.

The limit of connections follows from this process's limit of open files and sockets:
`core/servers/server_size.py` divides it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from typing import Final, NamedTuple, Protocol

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget, UnfinishedBodies
from penstock.core.request.head_check import HOST, RARE, HeadCheck, origin_form
from penstock.core.request.host_gate import HostGate
from penstock.core.servers.server_size import connections_for
from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.http.call import Call, Door
from penstock.gateway.http.known_heads import KnownHeads
from penstock.gateway.http.tls import TlsAcceptor
from penstock.gateway.request_id import RequestIds
from penstock.wire.aws.errors import AwsError

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = b"content-type"
ACCEPT: Final = b"accept"
CONTENT_LENGTH: Final = b"content-length"
CONNECTION: Final = b"connection"
EXPECT: Final = b"expect"
#: Header names that connections read; doors add theirs. The hot path compares them by identity.
FIELDS: Final = (CONTENT_TYPE, ACCEPT, CONTENT_LENGTH, CONNECTION, EXPECT, HOST, *RARE)
#: Remembered spellings of header names. If a client fills this, it is emptied and learned anew.
SPELLINGS_MAX = 4096
SPELLING_BYTES_MAX = 128
#: Connections over the limit that stay open until they have read why they are refused.
TURNED_AWAY_MAX = 32
#: Digits of a Content-Length below 10,000: such a body usually comes with its head.
LENGTH_DIGITS = 5


class OpenConnection(Protocol):
    """A client's connection, as the listener sees it."""

    received: float  #: monotonic s of the last read

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""

    def check(self, now: float) -> None:
        """Ends whatever takes too long."""

    def stop(self) -> None:
        """Accepts no further request; ends once those in flight are answered."""

    def abort(self) -> None:
        """Disconnects the client."""


class BodySender(Protocol):
    """A connection with an unfinished request."""

    def __hash__(self) -> int: ...

    @property
    def peer(self) -> str:
        """The client whose connections share one account for bodies."""

    def refuse_for_room(self) -> None:
        """Others need the memory of the request: refuses it."""


class Authenticator(Protocol):
    """Checks whether a request may pass: first its head, later the whole request."""

    def check_head(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """Raises PenstockError or AwsError if the head alone shows that the request may not pass.

        Called once the head is complete, so that strangers can't make the server hold bodies: no
        credentials, malformed ones, an unknown key, an old date. Returns if the body must be
        checked as well.
        """

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        """Raises PenstockError or AwsError if the whole request may not pass."""


class Denied(CallerError):
    """Not authenticated or not allowed; `code` is AWS's code, which clients compare."""

    status_default = 403


class BodyLimit(NamedTuple):
    """The largest body below a path."""

    bytes_max: int
    setting: str  #: its name, for whom it stops


class ListenerState:
    """The state of one gateway process's listener; `HttpListener` extends it."""

    speaks_http2 = False  #: besides HTTP/1.1

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
        body_limits: Sequence[tuple[bytes, BodyLimit]] = (),
    ) -> None:
        """
        Args:
            doors: (path prefix, door), tried in order.
            body_limits: (path prefix, limit) where it is not `limits.body_bytes_max`.
            fallback: takes every other path, and requests that a door hands back.
            interest: lower-case names of the headers that doors read in `Call.rare`.
            bodies: the budget of all doors of this process; None = a new one of the limits' size.
            gate: which hosts and web pages may call; None = loopback names and no other pages.
        """
        self.head_check = HeadCheck(gate or HostGate())
        self.bodies = bodies or BodyBudget(limits.bodies_bytes_max)
        self.unfinished: UnfinishedBodies[BodySender] = UnfinishedBodies()
        self.limits = limits
        self.ids = ids
        self.doors = tuple(doors)
        self._body_limits = tuple(body_limits)
        self._body_limit = BodyLimit(limits.body_bytes_max, "limits.body_bytes_max")
        #: a body up to this size is within the limit of every path
        self.body_bytes_max_least = min(
            each.bytes_max for each in (self._body_limit, *(limit for _, limit in body_limits))
        )
        self.fallback = fallback
        self.authenticator = authenticator
        #: None if every request must show credentials
        self.known_heads = KnownHeads() if authenticator is None else None
        self.monotonic = clock.monotonic
        #: monotonic s of the last tick, which is exact enough for timeouts
        self.now = clock.monotonic()
        self.draining = False
        #: Content-Lengths with more digits are checked when they are announced, not as the body
        #: comes
        self.length_digits = min(LENGTH_DIGITS, len(str(self.body_bytes_max_least)))
        #: the limit of descriptors may allow fewer than configured
        self.connections_max = connections_for(limit_now(), limits.connections_max)
        if self.connections_max < limits.connections_max:
            log.warning(
                "at most %d HTTP connections: the limit on open files is %d (ulimit -n)",
                self.connections_max,
                limit_now(),
            )
        self.tls: TlsAcceptor | None = None  #: its handshakes count as connections; None: no TLS
        self.connections: set[OpenConnection] = set()
        self._unflushed: list[Callable[[], None]] = []
        self._clock = clock
        self._interest = {name: name for name in (*FIELDS, *interest)}
        #: spelling on the wire -> name; None = nobody reads it
        self.fields: dict[bytes, bytes | None] = {}
        self._dated_at = -1
        self.common_head = b""
        self.date_head()

    def http2_protocol(self) -> asyncio.Protocol:
        """Makes the protocol of a client that speaks HTTP/2; called where that is spoken."""
        raise NotImplementedError

    def room(self) -> int:
        """Connections that may still come; below 0, new ones are closed without an answer."""
        pending = len(self.tls) if self.tls is not None else 0
        return self.connections_max + TURNED_AWAY_MAX - len(self.connections) - pending

    def body_limit(self, url: bytes) -> BodyLimit:
        """The limit of a request target, in any form that a request may have it."""
        path = origin_form(url)
        for prefix, limit in self._body_limits:
            if path.startswith(prefix):
                return limit
        return self._body_limit

    def admit(self, connection: OpenConnection) -> bool:
        """Counts a new connection. False if there are too many: then it gets an answer that says
        so.

        That answer needs a socket too: beyond `TURNED_AWAY_MAX` of them it is closed at once.
        """
        room = len(self.connections) < self.connections_max
        self.connections.add(connection)
        if self.room() < 0:
            connection.abort()
        return room

    def forget(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)

    def may_have_room(self, size: int, peer: str) -> bool:
        """Whether a body of `size` bytes that `peer` announces fits now."""
        missing = self.bodies.missing(size)
        return not missing or bool(self.unfinished.making_room(missing, peer, now=self.monotonic()))

    def make_room(self, size: int, peer: str) -> None:
        """Refuses unfinished bodies so that `size` bytes of `peer` fit, if that is fair."""
        missing = self.bodies.missing(size)
        for connection in self.unfinished.making_room(missing, peer, now=self.monotonic()):
            log.warning("no room for bodies: one of %s is cut", connection.peer)
            connection.refuse_for_room()

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """A connection has output: `flush` is called at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(flush)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for flush in unflushed:
            try:
                flush()
            except Exception:  # a bug of one connection must not keep back what others have made
                log.exception("writing to a client failed")

    def learn_field(self, name: bytes) -> bytes | None:
        """The name for a header as it was spelled on the wire; the spelling is remembered."""
        field = self._interest.get(name.lower())
        if len(name) <= SPELLING_BYTES_MAX:
            if len(self.fields) >= SPELLINGS_MAX:
                self.fields.clear()
            self.fields[name] = field
        return field

    def serve(self, call: Call) -> None:
        """Has a complete request authenticated and answered. Raises nothing."""
        if self.authenticator is not None:
            error = self.authentication_error(call)
            if error is not None:
                call.front_door.refuse(call, error)
                return
        try:
            if not call.front_door.handle(call):
                self.hand_over(call)
        except Exception:
            self.failed(call)

    def failed(self, call: Call) -> None:
        """Answers a request whose door raised; call it in the exception handler."""
        log.exception("a front door failed on %s", call.url[:256])
        error = InternalError("internal", "The request failed inside Penstock.")
        call.front_door.refuse(call, error)

    def hand_over(self, call: Call) -> None:
        """A door did not take this path: the fallback does."""
        call.front_door = self.fallback
        if not self.fallback.handle(call):
            call.answer_error(CallerError("not-found", "Nothing is served here.", status=404))

    def head_error(
        self, method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> PenstockError | None:
        """None if a request with this head may go on to its body; else the error."""
        authenticator = self.authenticator
        if authenticator is None:
            return None
        path, _, query = url.partition(b"?")
        text = method.decode("latin-1")
        return _denial(lambda: authenticator.check_head(text, path, query, headers), url)

    def authentication_error(self, call: Call) -> PenstockError | None:
        """None if the whole request may pass; else the error."""
        authenticator = self.authenticator
        if authenticator is None:
            return None
        method = call.method.decode("latin-1")
        return _denial(
            lambda: authenticator.check(method, call.path, call.query, call.headers, call.body),
            call.url,
        )

    def date_head(self) -> None:
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


def raise_limit() -> int:
    """Raises the soft limit of descriptors to the hard limit; returns the limit.

    The soft limit is low because of programs that use select(); ours do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as cause:  # a system may refuse an infinite limit
            log.warning("the limit on open files stays at %d: %s", soft, cause)
            return soft
    return hard


def limit_now() -> int | None:
    """Descriptors that this process may have open; None = no limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
