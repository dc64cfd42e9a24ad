"""One HTTP request and its answer, as a front door sees them.

`connection.py` makes a `Call` when a request is complete and passes it to a door. A call is an
`Invocation` from the start, so a request is one object on its whole way: a door on the hot path
adds the endpoint and the meta, and passes it to the dispatcher. The door answers with `answer`, or
with `start`, `send` and `finish`, from any later callback; the call keeps the order of the
connection's pipeline. Doors know nothing of sockets, and this module knows nothing of routing or
models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from penstock.core.blame.poison_requests import FRESH
from penstock.errors import PenstockError
from penstock.gateway.dispatch.invocation import NEW, Invocation, Responder
from penstock.gateway.request_id import RequestIds

#: Larger bodies are passed to the transport separately: copying costs more than a system call.
JOIN_BYTES_MAX = 131_072

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Door(Protocol):
    """A front door. One object serves all its requests; `call.context` is the door's to use."""

    def handle(self, call: Call) -> bool:
        """Takes the request and answers it now or later. False: this path is not the door's."""

    def refuse(self, call: Call, error: PenstockError) -> None:
        """Answers a request that was never handled (too large, not authenticated, not in time)."""

    def written(self, call: Call) -> None:
        """The last byte of the answer has left."""

    def abandoned(self, call: Call) -> None:
        """The client went away before that; nothing more of the answer will be read."""


class AnswerHeads(Protocol):
    """The headers that the answers of all connections share."""

    ids: RequestIds
    common_head: bytes  #: the headers for date and server, and the beginning of the request id's


class ClientConnection(Protocol):
    """The connection to a client; `connection.py` implements it."""

    current: Call | None  #: the request whose answer may be written now
    speaks_1_1: bool

    @property
    def listener(self) -> AnswerHeads: ...

    @property
    def http_version(self) -> str:
        """`1.0`, `1.1` or `2`, as in ASGI."""

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""

    def put(self, call: Call, data: bytes, *, last: bool) -> None:
        """Bytes of an answer, whether or not it is the current one."""

    def put_last(self, call: Call, data: bytes) -> None:
        """The last bytes of the current answer."""

    def take_back(self, call: Call) -> None:
        """The body that `call` holds is not needed any more."""

    def give_back(self, size: int) -> None:
        """A body of this size, which its call gave away, is not needed any more."""

    async def wait_writable(self, call: Call) -> None:
        """Returns when it is the call's turn and the client has read everything so far, or has
        gone."""

    def abort(self) -> None:
        """Disconnects the client."""

    def about(self, name: str) -> Any:
        """A value of the transport: `peername`, `sockname`, `sslcontext`."""


def status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES.get(status, b"Status"))


def error_body(error: PenstockError) -> bytes:
    """The plain JSON form of an error, for paths whose protocol has no form of its own."""
    return orjson.dumps({"code": error.code, "message": error.message, "hint": error.hint})


class Call(Invocation):
    """A request, complete with its body, and the way back to the client.

    Attributes:
        method, url: as on the wire; `url` is percent-encoded and includes the query.
        headers: (name, value) as on the wire, in order.
        content_type, accept: values of these headers; None if the client sent none.
        rare: other headers that doors read (`HttpListener.interest`), by lower-case name.
        number: counts up; the request id contains it.
        received: monotonic s.
        context: for the door's own use.
    """

    __slots__ = (
        "accept", "body_held", "connection", "connection_line", "content_type", "finished",
        "front_door", "headers", "method", "pending", "rare", "started", "url",
    )  # fmt: skip

    # The door that passes the call to the dispatcher sets these.
    endpoint: str
    meta: bytes
    responder: Responder

    def __init__(
        self,
        connection: ClientConnection,
        method: bytes,
        url: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        number: int,
        received: float,
        content_type: bytes | None,
        accept: bytes | None,
        rare: dict[bytes, bytes] | None,
        connection_line: bytes,
        front_door: Door,
        body_held: int = 0,
    ) -> None:
        self.connection: ClientConnection | None = connection  #: None once the client has gone
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.body_held = body_held  #: bytes of the budget for bodies, returned with the body
        self.number = number
        self.received = received
        self.content_type = content_type
        self.accept = accept
        self.rare = rare
        #: the Connection header line; empty for a plain keep-alive
        self.connection_line = connection_line
        self.front_door = front_door
        self.context = None
        self.finished = False  #: the whole answer was passed on
        self.started = (
            0  #: 0 = no; 1 = its length was given; 2 = chunked; 3 = ends with the connection
        )
        #: output while it is not this call's turn; None: it is
        self.pending: list[bytes] | None = None
        self.state = NEW
        self.affinity = self.aimed = self.stream = None
        self.past = FRESH
        self.deadline = None
        self.variant = None
        self.priority = 0
        self.door = "runtime"

    @property
    def path(self) -> bytes:
        """Percent-encoded, without the query."""
        return self.url.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        return self.url.partition(b"?")[2]

    @property
    def request_id(self) -> str:
        assert self.connection is not None
        return self.connection.listener.ids.text(self.number)

    def answer(self, head: bytes, body: bytes) -> None:
        """Sends the whole answer.

        Args:
            head: status line and headers, each with its CRLF, without length, date and request id.
            body: not sent for HEAD, but its length is.
        """
        connection = self.connection
        if connection is None or self.finished or self.started:
            return
        self.finished = True
        if self.body_held:  # inlined `drop_body`: it saves a call
            connection.take_back(self)
        self.headers = ()
        tail = b"%012x\r\ncontent-length: %d\r\n\r\n" % (self.number, len(body))
        common = connection.listener.common_head
        if self.method == b"HEAD":
            body = b""
        if len(body) > JOIN_BYTES_MAX:
            connection.put(self, b"".join((head, self.connection_line, common, tail)), last=False)
            connection.put(self, body, last=True)
            return
        data = b"".join((head, self.connection_line, common, tail, body))
        if connection.current is self:
            connection.put_last(self, data)
        else:
            connection.put(self, data, last=True)

    def answer_error(self, error: PenstockError, status: int | None = None) -> None:
        """Sends the plain JSON form of an error."""
        head = status_line(status or error.status) + b"content-type: application/json\r\n"
        if error.retry_after_s is not None:
            head += b"retry-after: %d\r\n" % max(1, round(error.retry_after_s))
        self.answer(head, error_body(error))

    def start(self, head: bytes, *, length: int | None = None) -> None:
        """Begins a streamed answer. `head` as in `answer`; `length`: total size of the body, if
        known."""
        connection = self.connection
        if connection is None or self.finished or self.started:
            return
        number = b"%012x\r\n" % self.number
        if length is not None:
            self.started = 1
            framing = b"content-length: %d\r\n\r\n" % length
        elif self.connection_line and not connection.speaks_1_1:
            self.started = 3
            self.connection_line = b"connection: close\r\n"
            framing = b"\r\n"
        else:
            self.started = 2
            framing = b"transfer-encoding: chunked\r\n\r\n"
        common = connection.listener.common_head
        data = b"".join((head, self.connection_line, common, number, framing))
        connection.put(self, data, last=False)

    def start_without_body(self, head: bytes) -> None:
        """The whole answer, for a status that has no body and no length (204, 304)."""
        connection = self.connection
        if connection is None or self.finished or self.started:
            return
        self.finished = True
        self.drop_body()
        common = connection.listener.common_head
        tail = b"%012x\r\n\r\n" % self.number
        connection.put(self, b"".join((head, self.connection_line, common, tail)), last=True)

    def send(self, chunk: bytes) -> None:
        """A part of the body, after `start`."""
        connection = self.connection
        if connection is None or self.finished or not chunk or self.method == b"HEAD":
            return
        if self.started == 2:
            chunk = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        connection.put(self, chunk, last=False)

    def finish(self) -> None:
        """Ends a streamed answer."""
        connection = self.connection
        if connection is None or self.finished:
            return
        self.finished = True
        self.drop_body()
        ending = b"0\r\n\r\n" if self.started == 2 and self.method != b"HEAD" else b""
        connection.put(self, ending, last=True)

    def drop_body(self) -> None:
        """The body is not needed any more: frees it before the answer's turn. Idempotent."""
        if self.body_held and self.connection is not None:
            self.connection.take_back(self)
        self.headers = ()

    def take_body(self) -> tuple[bytes, Callable[[], None]]:
        """The body, for a user that may need it longer than the answer takes, and a function to
        return it.

        Until that function is called, the body counts against the budget.
        """
        assert self.connection is not None
        connection, held = self.connection, self.body_held
        body, self.body, self.body_held = self.body, b"", 0
        return body, lambda: connection.give_back(held)

    def abandon(self) -> None:
        """The client has gone."""
        self.drop_body()
        self.connection = None
        self.front_door.abandoned(self)

    def abort(self) -> None:
        """Disconnects the client: the only way to report an error once an answer has begun."""
        if self.connection is not None:
            self.connection.abort()
