"""What the connections of one listener share: limits, doors, memory for bodies, who may come in.

A door is found by path prefix; what no door takes goes to the fallback (an ASGI application behind
`asgi.AsgiDoor`). What every answer carries (date, request id's prefix) is put together here once
per tick. Sockets and time are `listener.py`'s, which extends this class; how a connection reads and
writes is its own.

How many may be connected follows from the limit on open files and sockets of this process:
`core/servers/server_size.py` says who gets them.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from typing import Final, Protocol

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget, UnfinishedBodies
from penstock.core.request.head_check import HOST, RARE, HeadCheck
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
#: Header names that connections act on; doors add theirs. Compared by identity on the hot path.
FIELDS: Final = (CONTENT_TYPE, ACCEPT, CONTENT_LENGTH, CONNECTION, EXPECT, HOST, *RARE)
#: Spellings of header names that are remembered; a stranger can only make us forget and learn
#: again.
SPELLINGS_MAX = 4096
SPELLING_BYTES_MAX = 128
#: Connections over the limit that are kept until they have read why they are not served.
TURNED_AWAY_MAX = 32
#: A body below 10,000 bytes mostly comes with its head.
LENGTH_DIGITS = 5


class OpenConnection(Protocol):
    """A client's connection, as its listener sees it."""

    received: float  #: monotonic s of the last read

    @property
    def unread_bytes(self) -> int:
        """What the client has not taken; 0 while it keeps up."""

    def check(self, now: float) -> None:
        """Ends what takes too long."""

    def stop(self) -> None:
        """Takes no further request; ends once those in flight are answered."""

    def abort(self) -> None:
        """Cuts it."""


class BodySender(Protocol):
    """A connection that holds an unfinished request."""

    def __hash__(self) -> int: ...

    @property
    def peer(self) -> str:
        """Whose bodies are counted together with those that come here."""

    def refuse_for_room(self) -> None:
        """Others need the memory that the request holds."""


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


class ListenerState:
    """One per gateway process: `HttpListener` extends it."""

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
        self.unfinished: UnfinishedBodies[BodySender] = UnfinishedBodies()
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
        self.tls: TlsAcceptor | None = None  #: its handshakes are connections that may come
        self.connections: set[OpenConnection] = set()
        self._unflushed: list[Callable[[], None]] = []
        self._clock = clock
        self._interest = {name: name for name in (*FIELDS, *interest)}
        self.fields: dict[bytes, bytes | None] = {}  #: spelling on the wire -> name, None = unused
        self._dated_at = -1
        self.common_head = b""
        self.date_head()

    def room(self) -> int:
        """Connections that may still come; below 0 some are to be turned away without a word."""
        pending = len(self.tls) if self.tls is not None else 0
        return self.connections_max + TURNED_AWAY_MAX - len(self.connections) - pending

    def admit(self, connection: OpenConnection) -> bool:
        """Counts a new connection in; False if there are too many, and it is to be told so.

        Telling takes a socket as well: beyond `TURNED_AWAY_MAX` of them it is closed at once.
        """
        room = len(self.connections) < self.connections_max
        self.connections.add(connection)
        if self.room() < 0:
            connection.abort()
        return room

    def forget(self, connection: OpenConnection) -> None:
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

    def flush_soon(self, flush: Callable[[], None]) -> None:
        """A connection has made output: it writes it at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(flush)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for flush in unflushed:
            flush()

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
