"""One HTTP request over HTTP/2: fields and data in, a `Call` out.

The checks and bounds are those of HTTP/1.1 (`gateway/http/connection.py`): what the head alone
decides is decided before any of the body is kept, a body is taken from the one budget as it comes,
and doors get a request when it is complete. What is not taken from the budget is not acknowledged,
so a client can send no more than its windows. Trailers are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from penstock.core.request.head_check import FIELDS_MAX, HOST
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.http.call import ClientConnection, Door
from penstock.gateway.http.connection import LINGER_S_MAX
from penstock.gateway.http.listener_state import (
    ACCEPT,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    ListenerState,
)
from penstock.gateway.http2.exchange import Http2Carrier
from penstock.gateway.http2.http_answers import Http2Call, HttpAnswerStream
from penstock.gateway.http2.http_port import HttpPort
from penstock.wire.http2.events import RequestReceived

_EXPECTED: Final = b"100-continue"
_CONTINUE: Final = ((b":status", b"100"),)
_KNOWN_MAX: Final = 32  #: heads; `wire/http2` keeps as many
_KNOWN_BYTES_MAX: Final = 1024  #: of a head that is kept
_FIELD_LINE_BYTES: Final = 4  #: what a line of HTTP/1.1 has besides a name and its value


class HttpRequestHead(NamedTuple):
    """What this class and doors use of a head."""

    request: RequestReceived  #: the first that had it
    headers: Sequence[tuple[bytes, bytes]]  #: with the host among them, which a signature covers
    content_type: bytes | None
    accept: bytes | None
    rare: dict[bytes, bytes] | None
    declared: int  #: the Content-Length, 0 if there is none
    size: int  #: bytes of its lines over HTTP/1.1, which is how heads are bounded
    door: Door


class KnownRequests:
    """Heads of one connection that were found right, to be looked up when they come again.

    As `gateway/http/known_heads.py`: what a head passed depends only on itself and on fixed
    settings. `wire/http2` hands the same objects on for the same block, so they are compared by
    identity. A server that asks for credentials keeps no heads.
    """

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[int, HttpRequestHead] = {}  #: by the identity of their fields

    def find(self, request: RequestReceived) -> HttpRequestHead | None:
        head = self._heads.get(id(request.fields))
        if head is None:
            return None
        _, method, path, authority, _, fields, _ = head.request
        same = (
            fields is request.fields
            and path is request.path
            and method is request.method
            and authority is request.authority
        )
        return head if same else None

    def keep(self, head: HttpRequestHead) -> None:
        if head.size > _KNOWN_BYTES_MAX:
            return
        if len(self._heads) >= _KNOWN_MAX:
            self._heads.clear()
        self._heads[id(head.request.fields)] = head


class HttpRequestStream(HttpAnswerStream):
    """A request and its answer. `read_head` comes first."""

    __slots__ = (
        "_account", "_body", "_buffer", "_head", "_head_held", "_held", "_listed", "_received",
        "_request", "_since",
    )  # fmt: skip

    _head: HttpRequestHead

    def __init__(self, connection: Http2Carrier, request: RequestReceived, port: HttpPort) -> None:
        super().__init__(connection, request.stream, port)
        self._request = request
        self._body = b""
        self._buffer: bytearray | None = None
        self._held = 0  #: bytes of the budget
        self._head_held = 0  #: the same for the head, while the body is awaited
        self._listed = False  #: among the unfinished bodies, as one of `_account`
        self._account = ""
        self._since = self._received = connection.received

    def read_head(self, known: KnownRequests) -> None:
        """Refuses what the head alone decides."""
        request, listener = self._request, self.listener
        head = known.find(request)
        if head is None:
            if len(request.fields) > FIELDS_MAX:
                self._head = _read(request._replace(fields=()), listener)
                self._refuse(refusals.fields_too_many(FIELDS_MAX))
                return
            self._head = head = _read(request, listener)
            error = self._head_error(head)
            if error is not None:
                self._refuse(error)
                return
            if head.rare is None and listener.authenticator is None:
                known.keep(head)
        self._head = head
        if head.declared and not listener.may_have_room(head.declared, self.peer):
            self._refuse(refusals.memory_full())
            return
        if not request.end:
            self._await_body(head)

    def _await_body(self, head: HttpRequestHead) -> None:
        """Streams are cheap to open: while its body is awaited, a head counts as if it were a part
        of it."""
        connection = self.connection
        assert connection is not None
        if not connection.machine.complete(self.stream):
            if not self.port.take(self, head.size):
                self._refuse(refusals.memory_full())
                return
            self._head_held = head.size
            self._list(connection)
        if head.rare is not None and EXPECT in head.rare:
            self.send_head(_CONTINUE)

    def _head_error(self, head: HttpRequestHead) -> PenstockError | None:
        listener = self.listener
        limits = listener.limits
        _, method, path, authority, _, _, _ = self._request
        if head.size > limits.head_bytes_max:
            return refusals.head_too_large(limits)
        if not path:
            return refusals.connect_unserved()
        rare = head.rare or {}
        known_host = authority if authority in listener.head_check.known_hosts else None
        if known_host is None and authority:
            rare = {**rare, HOST: authority}
        error = listener.head_check.error(method, path, "1.1", known_host, rare)
        if error is None and head.declared > listener.body_bytes_max_least:
            error = self._body_error(head.declared)
        if error is None and listener.authenticator is not None:
            error = listener.head_error(method, path, head.headers)
        expected = rare.get(EXPECT, _EXPECTED)
        if error is None and expected.lower() != _EXPECTED:
            error = refusals.expectation_unknown(expected)
        return error

    def _body_error(self, size: int) -> PenstockError | None:
        """The refusal of a body that is larger than its door takes."""
        limit = self.listener.body_limit(self._request.path)
        return refusals.body_too_large(*limit) if size > limit.bytes_max else None

    # The body

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        if self.call is not None:
            return  # it was refused: what still comes is not acknowledged
        size = len(data)
        if size and not self._take(data, size):
            return
        self.acknowledge(flow_bytes)
        connection = self.connection
        if size and connection is not None and not connection.machine.complete(self.stream):
            self._list(connection)

    def _take(self, data: bytes, size: int) -> bool:
        """Keeps a piece. False: the request was refused."""
        if not self.port.take(self, size):
            self._refuse(refusals.memory_full())
            return False
        if self.call is not None or self.connection is None:  # refused, to make room for itself
            self.port.give(size)
            return False
        self._held += size
        if not self._body:
            self._body = data
        else:
            buffer = self._buffer
            if buffer is None:
                # Not a list of pieces: those of one byte each would take 40 times their size.
                self._buffer = buffer = bytearray(self._body)
            buffer += data
        if self._held > self.listener.body_bytes_max_least:
            error = self._body_error(self._held)
            if error is not None:
                self._refuse(error)
                return False
        return True

    def _list(self, connection: Http2Carrier) -> None:
        """More comes in a later read: until then the request may be refused to make room."""
        self._listed = True
        self._account = connection.account
        self.port.unfinished(self, self._head_held + self._held)

    def _unlist(self) -> None:
        """The body is complete, or not wanted any more."""
        if self._listed:
            self._listed = False
            self.port.finished(self, self._account)
            self.port.give(self._head_held)
            self._head_held = 0

    def _drop(self) -> None:
        """Forgets the unfinished body and frees its memory."""
        self._unlist()
        self._body = b""
        self._buffer = None
        self.port.give(self._held)
        self._held = 0

    def on_complete(self) -> None:
        if self.call is not None:
            return  # it was refused
        self._unlist()
        if self.connection is not None:
            self._received = self.connection.received
        self.listener.serve(self._new_call())

    def _new_call(self) -> Http2Call:
        request = self._request
        _, headers, content_type, accept, rare, _, _, door = self._head
        body = self._body if self._buffer is None else bytes(self._buffer)
        self._body, self._buffer = b"", None
        held, self._held = self._held, 0
        ids = self.listener.ids
        ids.count = number = ids.count + 1
        self.call = call = Http2Call(
            # It has all of one but the order of answers, which only other calls use.
            cast(ClientConnection, self),
            request.method,
            request.path,
            headers,
            body,
            number,
            self._received,
            content_type,
            accept,
            rare,
            b"",
            door,
            held,
        )
        return call

    def _refuse(self, error: PenstockError) -> None:
        """Answers with an error, in the form of the request's door."""
        if self.call is not None or self.connection is None:
            return
        self._drop()
        machine = self.connection.machine
        machine.linger(self.stream, until=self.port.monotonic() + LINGER_S_MAX)
        call = self._new_call()
        if call.url:
            call.front_door.refuse(call, error)
        else:
            call.answer_error(error)

    # Time and ends

    @property
    def peer(self) -> str:
        return self._account if self._listed else super().peer

    def refuse_for_room(self) -> None:
        self._refuse(refusals.memory_full())

    def check(self, now: float) -> None:
        body_timeout_s = self.listener.limits.body_timeout_s
        if self.call is None and now - self._since >= body_timeout_s:
            self._refuse(refusals.too_slow("body", body_timeout_s))

    def on_gone(self) -> None:
        self._drop()
        super().on_gone()


def _read(request: RequestReceived, listener: ListenerState) -> HttpRequestHead:
    """What a head says. It is not checked yet."""
    content_type: bytes | None = None
    accept: bytes | None = None
    rare: dict[bytes, bytes] | None = None
    declared = 0
    headers = request.fields
    if request.authority and not any(name == HOST for name, _ in headers):
        headers = ((HOST, request.authority), *headers)
    known = listener.fields
    for name, value in request.fields:
        try:
            field = known[name]
        except KeyError:
            field = listener.learn_field(name)
        if field is None or field is HOST:
            continue
        if field is CONTENT_TYPE:
            content_type = value
        elif field is ACCEPT:
            accept = value
        elif field is CONTENT_LENGTH:
            declared = int(value)  # digits alone: `wire/http2` checks it
        else:
            if rare is None:
                rare = {}
            before = rare.get(field)
            rare[field] = value if before is None else before + b"," + value
    door: Door = listener.fallback
    for prefix, candidate in listener.doors:
        if request.path.startswith(prefix):
            door = candidate
            break
    size = sum([len(name) + len(value) for name, value in request.fields])
    size += len(request.path) + _FIELD_LINE_BYTES * len(request.fields)
    return HttpRequestHead(request, headers, content_type, accept, rare, declared, size, door)
