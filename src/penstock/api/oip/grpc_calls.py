"""gRPC calls over HTTP/2: messages in, messages and a status out.

`UnaryCall` has one message each way, `grpc_stream_calls.py` has calls of many. All bound what they
hold: what has come of a message is taken from the budget for bodies, and a message must be complete
in time.

Source: gRPC over HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from penstock.api.oip.grpc_access import check_endpoint
from penstock.api.oip.grpc_status import GrpcStatus, translate
from penstock.core.request.grants import Grant
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.gateway.http2.exchange import Http2Carrier, Http2Exchange
from penstock.wire.grpc_messages import (
    ENCODINGS,
    GrpcFault,
    GrpcMessageSplitter,
    PackedMessage,
    escaped_message,
    framed_message,
    message_head,
    timeout_s,
)
from penstock.wire.http2.events import RequestReceived
from penstock.wire.http2.hpack import Field

log = logging.getLogger(__name__)

_HEAD: Final = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", ENCODINGS),
)
_OK: Final = ((b"grpc-status", b"0"),)
_BINARY: Final = b"-bin"
#: Fields of a call that are no metadata.
_NO_METADATA: Final = frozenset((b"te", b"content-type"))
#: Of a compressed message, bytes that are inflated at once: so many of each call, and then so many
#: of all calls together in one turn of the event loop, which is less than a millisecond of it.
_INFLATED_FIRST: Final = 64 << 10
_INFLATED_IN_A_TURN: Final = 256 << 10
#: The head of a larger message is a piece by itself.
_COPIED_BYTES_MAX: Final = 64 << 10
#: Longer texts of an error are cut: clients bound the header lists that they take to 8 KiB or so.
_WORDS_BYTES_MAX: Final = 4_096


class CallBounds(NamedTuple):
    """What a call may hold, and for how long; the calls of a server share them."""

    message_bytes_max: int
    timeout_s: float  #: from the head of a call to the end of its first message
    inflating: asyncio.Lock  #: whose large message is inflated in this turn of the event loop


class GrpcCall(Http2Exchange):
    """What all calls share: head, memory for messages, status."""

    __slots__ = (
        "_account", "_answered", "_bounds", "_head_sent", "_held", "_listed", "_listener",
        "_splitter", "_task", "deadline", "fields", "grant", "received",
    )  # fmt: skip

    def __init__(
        self,
        connection: Http2Carrier,
        request: RequestReceived,
        bounds: CallBounds,
        grant: Grant | None = None,
    ) -> None:
        """`read_head` comes next."""
        super().__init__(connection, request.stream)
        self._bounds = bounds
        self._listener = connection.listener
        self._account = connection.account
        self._held = 0  #: bytes of the budget
        self._listed = False  #: a message is unfinished
        self._head_sent = False
        self._answered = False  #: its status is known
        self._splitter: GrpcMessageSplitter | None = None  #: None: no message is awaited
        self._task: asyncio.Task[None] | None = None
        self.fields = request.fields
        self.grant = grant  #: None without authentication, and for strangers
        self.received = connection.received  #: monotonic s of its head
        self.deadline: float | None = None  #: monotonic s

    def read_head(self) -> None:
        """Raises GrpcFault: a head that can't be served."""
        encoding = b"identity"
        for name, value in self.fields:
            if name == b"grpc-timeout":
                self.deadline = self.received + timeout_s(value)
            elif name == b"grpc-encoding":
                encoding = value
        self._splitter = GrpcMessageSplitter(self._bounds.message_bytes_max, encoding)

    # About the call

    @property
    def client(self) -> str:
        """The client's address, such as `ipv4:127.0.0.1:5000`; "" once it is gone."""
        connection = self.connection
        address = connection.about("peername") if connection is not None else None
        if not address:
            return ""
        host = str(address[0])
        return f"ipv6:[{host}]:{address[1]}" if ":" in host else f"ipv4:{host}:{address[1]}"

    def metadata(self) -> list[tuple[str, str | bytes]]:
        return [
            (name.decode("latin-1"), _value(name, value))
            for name, value in self.fields
            if name not in _NO_METADATA
        ]

    def granted(self, operation: str, endpoint: str) -> None:
        """Returns if the call is allowed to. Raises Denied."""
        check_endpoint(self.grant, operation, endpoint)

    # Answers

    def answer(self, message: bytes) -> None:
        """A message of the answer."""
        if not self._head_sent:
            self._head_sent = True
            self.send_head(_HEAD)
        if len(message) > _COPIED_BYTES_MAX:
            self.send(message_head(message))
            self.send(message)
        else:
            self.send(framed_message(message))

    def answer_with(self, message: bytes) -> None:
        """The one message of an answer, which is complete with it."""
        if self._answered or self._head_sent or len(message) > _COPIED_BYTES_MAX:
            self.answer(message)
            self.succeed()
            return
        self._answered = self._head_sent = True
        self.respond(_HEAD, framed_message(message), _OK)
        self.release()

    def succeed(self) -> None:
        """The answer is complete."""
        if self._answered:
            return
        self._answered = True
        if not self._head_sent:
            self._head_sent = True
            self.send_head(_HEAD)
        self.end(_OK)
        self.release()

    def fail(self, error: PenstockError) -> None:
        self.fail_with(*translate(error))

    def fail_with(self, status: int, words: str) -> None:
        """Ends the call, unless its status is known already. Of the answer so far, only messages
        that have begun to leave arrive."""
        if self._answered:
            return
        self._answered = True
        trailers: tuple[Field, ...] = ((b"grpc-status", b"%d" % status),)
        if words:
            trailers += ((b"grpc-message", escaped_message(words[:_WORDS_BYTES_MAX])),)
        self._splitter = None
        self._cancel()
        if self._head_sent:
            self.drop_unsent()
            self.end(trailers)
        else:
            self.finish(_HEAD[:2] + trailers)
        self.release()

    def broken(self, error: BaseException) -> None:
        """A bug ended it."""
        log.error("a gRPC call failed", exc_info=error)
        self.fail_with(GrpcStatus.INTERNAL, "internal error (internal)")

    # Work that awaits something

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Does `work` in a task, which is cancelled when the call ends before it. An error that
        it raises ends the call."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        if self._task is task:  # it may have begun another one
            self._task = None
        if task.cancelled():
            self.fail_with(GrpcStatus.CANCELLED, "The call was cancelled.")
            return
        error = task.exception()
        if isinstance(error, PenstockError):
            self.fail(error)
        elif isinstance(error, GrpcFault):
            self.fail_with(error.status, error.words)
        elif error is not None:
            self.broken(error)

    def _cancel(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    # Compressed messages

    async def inflated(self, packed: PackedMessage) -> bytes:
        """The message. Raises GrpcFault, and NotNowError where there is no room for it."""
        self._inflate(packed, _INFLATED_FIRST)
        while not packed.whole:
            async with self._bounds.inflating:
                self._inflate(packed, _INFLATED_IN_A_TURN)
                await asyncio.sleep(0)
        return packed.message()

    def _inflate(self, packed: PackedMessage, size: int) -> None:
        if not self.hold_inflating(packed.held_bytes + size):
            raise too_large()
        packed.inflate(size)

    def hold_inflating(self, size: int) -> bool:
        """Accounts for a message that takes `size` bytes while it is inflated; as `hold`."""
        return self.hold(size, unfinished=True)

    # Memory

    @property
    def peer(self) -> str:
        return self._account

    def hold(self, size: int, *, unfinished: bool) -> bool:
        """Accounts for `size` bytes of messages. False: there is no room; the call has failed."""
        more = size - self._held
        if more > 0:
            if not self._listener.take(self, more):
                if self.connection is not None:
                    self.refuse_for_room()
                return False
            if self._answered:  # it was cut to make room for itself
                self._listener.give(more)
                return False
        elif more:
            self._listener.give(-more)
        self._held = size
        if unfinished:
            self._listed = True
            self._listener.unfinished(self, size)
        elif self._listed:
            self._listed = False
            self._listener.finished(self, self._account)
        return True

    def release(self) -> None:
        """The messages are not needed any more. Idempotent."""
        if self._held:
            self._listener.give(self._held)
            self._held = 0
        if self._listed:
            self._listed = False
            self._listener.finished(self, self._account)

    # Of an exchange

    def on_gone(self) -> None:
        self._cancel()
        self.release()

    def on_written(self) -> None:
        self.release()

    def refuse_for_room(self) -> None:
        self.fail(too_large())

    def on_drain_over(self) -> None:
        if not self.waits:
            self.fail_with(GrpcStatus.UNAVAILABLE, "The server stops.")

    def check(self, now: float) -> None:
        if self.waits or self.connection is None:
            return
        if self.deadline is not None and now >= self.deadline:
            self.fail_with(GrpcStatus.DEADLINE_EXCEEDED, "The deadline has passed.")


def too_large() -> NotNowError:
    return NotNowError(
        "bodies-too-large",
        "The bodies of all requests are as large as the server may hold.",
        hint="Try again shortly; limits.bodies_bytes_max is the setting.",
        retry_after_s=1.0,
    )


def too_slow() -> CallerError:
    return CallerError("message-too-slow", "The message took too long to come.", status=408)


def missing() -> CallerError:
    return CallerError("message-missing", "The call ended without a message.")


def _value(name: bytes, value: bytes) -> str | bytes:
    if not name.endswith(_BINARY):
        return value.decode("latin-1")
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4))
    except ValueError:
        return value


class UnaryCall(GrpcCall):
    """One message and one answer, which `handle` makes of the call and its message."""

    __slots__ = ("_handle",)

    def __init__(
        self,
        connection: Http2Carrier,
        request: RequestReceived,
        bounds: CallBounds,
        grant: Grant | None,
        handle: Callable[[UnaryCall, bytes], bytes | Awaitable[bytes]] | None = None,
    ) -> None:
        super().__init__(connection, request, bounds, grant)
        self._handle = handle

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        self.acknowledge(flow_bytes)
        splitter = self._splitter
        if splitter is None:
            return  # it has its message; grpcio's server reads no further either
        try:
            messages = splitter.feed(data)
        except GrpcFault as fault:
            self.fail_with(fault.status, fault.words)
            return
        if not messages:
            self.hold(splitter.held_bytes, unfinished=True)
            return
        self._splitter = None
        message = messages[0]
        if isinstance(message, PackedMessage):
            self.run(self._take_packed(message))
        else:
            self._take_whole(message)

    def _take_whole(self, message: bytes) -> None:
        # Held until it is answered, as bodies over HTTP/1.1 are.
        if self.hold(len(message), unfinished=False):
            self.take(message)

    async def _take_packed(self, packed: PackedMessage) -> None:
        self._take_whole(await self.inflated(packed))

    def on_complete(self) -> None:
        if self._splitter is not None:
            self.fail(missing())

    def take(self, message: bytes) -> None:
        """Serves it. Raises nothing."""
        self._splitter = None
        try:
            self.on_message(message)
        except PenstockError as error:
            self.fail(error)
        except Exception as error:
            self.broken(error)

    def on_message(self, message: bytes) -> None:
        """May raise, PenstockErrors above all."""
        assert self._handle is not None
        answer = self._handle(self, message)
        if isinstance(answer, bytes):
            self.answer_with(answer)
        else:
            self.run(self._answer_with(answer))

    async def _answer_with(self, answer: Awaitable[bytes]) -> None:
        self.answer_with(await answer)

    def check(self, now: float) -> None:
        if self._splitter is not None and now - self.received >= self._bounds.timeout_s:
            self.fail(too_slow())
        else:
            super().check(now)
