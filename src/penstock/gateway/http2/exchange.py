"""One request on an HTTP/2 connection, and its answer.

A door makes a subclass for what it serves, and returns it for a request's head. The connection
calls the `on_...` methods, in the order in which things happen. The door answers when it is ready:
`send_head`, any number of `send`, then `end` or `finish`.

What the client's windows or its socket don't take now is kept here, in order, and leaves later.
A door that makes much asks `waiting_bytes`, and goes on when `on_room` is called.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Protocol

from penstock.gateway.http2.listener_state import Http2Shared
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.frames import CANCEL, INTERNAL_ERROR
from penstock.wire.http2.hpack import Field

#: s in which a client must take something of an answer that waits for it, as over HTTP/1.1 where
#: the producer waits too (`answer_pipeline.PACED_STALL_S_MAX`).
STALL_S_MAX: Final = 30.0


class Http2Carrier(Protocol):
    """A connection, as its exchanges see it."""

    machine: Http2Connection
    listener: Http2Shared
    received: float  #: monotonic s of the last read
    paused: bool  #: the client does not take what is sent
    waiting: dict[int, Http2Exchange]  #: by stream: their answers wait for the client

    @property
    def account(self) -> str:
        """The client whose connections share one account for bodies."""

    def about(self, name: str) -> Any:
        """What the transport knows: `peername`, `sockname`, `sslcontext`."""

    def flush_soon(self) -> None:
        """There is output: it leaves at the end of this turn of the loop."""

    def over(self, exchange: Http2Exchange) -> None:
        """Its answer is complete."""

    def lost(self, exchange: Http2Exchange) -> None:
        """It was reset."""


class Http2Exchange:
    """The base of what doors make of a request."""

    __slots__ = (
        "_deferred", "_last", "_waiting", "_waiting_since", "connection", "stream", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, connection: Http2Carrier, stream: int) -> None:
        self.connection: Http2Carrier | None = connection  #: None: it is over
        self.stream = stream
        self.waiting_bytes = 0  #: of the answer, that the client has not taken
        self._waiting: deque[bytes | memoryview] | None = None
        self._waiting_since = 0.0  #: monotonic s of the last byte that was taken
        self._last: tuple[Field, ...] | None = None  #: trailers that wait behind the rest
        #: a whole answer that waits for the socket
        self._deferred: tuple[tuple[Field, ...], tuple[Field, ...]] | None = None

    # For the door to define. None may raise, except that a bug ends the exchange.

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        """A piece of the body; give `flow_bytes` to `acknowledge` once it is consumed."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """The request is complete."""

    def on_gone(self) -> None:
        """The client has given up, or is gone: nothing can be answered any more."""
        raise NotImplementedError

    def on_written(self) -> None:
        """The last byte of the answer has left. Always called, unless `on_gone` is."""

    def on_room(self) -> None:
        """All that was sent has been taken."""

    def on_drain_over(self) -> None:
        """The server stops now: answer at once."""
        self.reset(CANCEL)

    def check(self, now: float) -> None:
        """Called about once a second: end what takes too long. `now`: monotonic s."""

    def refuse_for_room(self) -> None:
        """Others need the memory of the unfinished body: refuse the request."""
        self.reset(CANCEL)

    # For the door to call

    @property
    def peer(self) -> str:
        """The client whose connections share one account for bodies."""
        connection = self.connection
        return connection.account if connection is not None else ""

    def acknowledge(self, flow_bytes: int) -> None:
        connection = self.connection
        if connection is not None:
            connection.machine.acknowledge(self.stream, flow_bytes)
            connection.flush_soon()

    def send_head(self, fields: tuple[Field, ...], varying: tuple[Field, ...] = ()) -> None:
        """`varying`: as in `Http2Connection.send_headers`."""
        connection = self.connection
        if connection is not None:
            connection.machine.send_headers(self.stream, fields, varying)
            connection.flush_soon()

    def send(self, data: bytes) -> None:
        """A piece of the body."""
        connection = self.connection
        if connection is None:
            return
        if self._waiting is None and not connection.paused:
            taken = connection.machine.send_data(self.stream, data)
            connection.flush_soon()
            if taken == len(data):
                return
            self._wait(memoryview(data)[taken:] if taken else data)
        else:
            self._wait(data)

    def end(self, trailers: tuple[Field, ...]) -> None:
        """The answer is complete; `on_written` follows."""
        connection = self.connection
        if connection is None:
            return
        if self._waiting is not None:
            self._last = trailers
            return
        connection.machine.send_trailers(self.stream, trailers)
        connection.over(self)

    def respond(self, head: tuple[Field, ...], data: bytes, trailers: tuple[Field, ...]) -> None:
        """A whole answer; `on_written` follows."""
        connection = self.connection
        if connection is None:
            return
        if not connection.paused and connection.machine.send_answer(
            self.stream, head, data, trailers
        ):
            connection.over(self)
            return
        self.send_head(head)
        self.send(data)
        self.end(trailers)

    def send_last(self, data: bytes | memoryview) -> None:
        """The last piece of the body, of an answer without trailers; `on_written` follows."""
        connection = self.connection
        if connection is None:
            return
        if self._waiting is None and not (data and connection.paused):
            taken = connection.machine.send_data(self.stream, data, end=True)
            if taken == len(data):
                connection.over(self)
                return
            connection.flush_soon()
            data = memoryview(data)[taken:] if taken else data
        self._last = ()
        if data:
            self._wait(data)

    def finish(self, fields: tuple[Field, ...], varying: tuple[Field, ...] = ()) -> None:
        """A whole answer without a body."""
        connection = self.connection
        if connection is None:
            return
        if connection.paused:
            # A client that asks and does not read must not fill memory with refusals: its stream
            # counts until it reads.
            self._deferred = fields, varying
            self.begin_waiting()
            return
        connection.machine.send_headers(self.stream, fields, varying, end=True)
        connection.over(self)

    def drop_unsent(self) -> bool:
        """Drops the pieces of the answer of which nothing has left; what remains of one that has
        begun still leaves. False: there is nothing left to take."""
        waiting = self._waiting
        if waiting is None:
            return False
        first = waiting[0]
        begun = isinstance(first, memoryview)
        waiting.clear()
        if begun:
            waiting.append(first)
            self.waiting_bytes = len(first)
            return True
        self.waiting_bytes = 0
        self._waiting = None
        return False

    def reset(self, code: int = INTERNAL_ERROR) -> None:
        """Ends it at once, without an answer; `on_gone` is called."""
        connection = self.connection
        if connection is not None:
            connection.machine.reset(self.stream, code)
            connection.lost(self)

    # For the connection

    def begin_waiting(self) -> None:
        """From now on the client must take something of the answer (`stalled`)."""
        connection = self.connection
        assert connection is not None
        self._waiting_since = connection.listener.monotonic()
        connection.waiting[self.stream] = self

    def push(self) -> None:
        """The client's windows or its socket have room again."""
        connection = self.connection
        if connection is None or connection.paused:
            return
        if self._deferred is not None:
            self.finish(*self._deferred)
            return
        waiting = self._waiting
        if waiting is None:
            return
        machine = connection.machine
        self._waiting_since = connection.listener.monotonic()
        while waiting:
            data = waiting[0]
            taken = machine.send_data(self.stream, data)
            self.waiting_bytes -= taken
            connection.flush_soon()
            if taken < len(data):
                if taken:
                    waiting[0] = memoryview(data)[taken:]
                return
            waiting.popleft()
        self._waiting = None
        if self._last is not None:
            if self._last:
                machine.send_trailers(self.stream, self._last)
            else:
                machine.send_data(self.stream, b"", end=True)
            connection.over(self)
        else:
            self.on_room()

    @property
    def waits(self) -> bool:
        """Whether a part of the answer waits for the client."""
        return self._waiting is not None or self._deferred is not None

    def stalled(self, now: float) -> bool:
        """Whether the client takes nothing of the answer that waits for it."""
        return self.waits and self.waits_s(now) >= STALL_S_MAX

    def waits_s(self, now: float) -> float:
        """For how long the client has taken nothing of the answer that waits for it."""
        return now - self._waiting_since

    def _wait(self, data: bytes | memoryview) -> None:
        if self._waiting is None:
            self._waiting = deque()
            self.begin_waiting()
        self._waiting.append(data)
        self.waiting_bytes += len(data)
