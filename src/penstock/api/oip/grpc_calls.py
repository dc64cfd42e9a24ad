"""Authorizes gRPC calls by their heads, and receives their messages within bounds.

Anybody may ask whether the server lives. All other calls need a bearer token in their metadata, and
an unauthorized call ends at once, however much of its message was sent: grpcio requests no message
of a call whose handler takes a stream and reads none. The endpoint is only in the message, so
`granted` checks it once that has arrived.

The bounds are on how many messages are received at once, and for how long.

grpcio delivers a message only as a whole, and lets the client send all of it as soon as it is
requested. So the messages of calls that have one are received in turns. A call that waits for its
turn holds only what the client may send early (`LOOKAHEAD_BYTES`), and one connection can't take
every turn. If connections wait, a message that has been arriving for `PATIENCE_S` is given up:
small messages take no time.

A call of many messages may be idle before any of them for any time, so it needs no turn. What has
come of its next message is counted (`grpc_arrivals.py`), as is a slow message of any call, and
bounded by the budget for bodies. The call reserves what it may send early, and is refused if there
is no room. Where a connection can't be counted, each awaited message reserves room for the largest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import grpc

from penstock.api.access import AccessRequest, permit
from penstock.api.oip.grpc_arrivals import Arrivals, AwaitedMessage, countable
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.grants import (
    CHANGE_LOG,
    INVOKE_ENDPOINT,
    LIST_SERVED_MODELS,
    LOAD_TARGET_MODEL,
    MODEL_METADATA,
    SERVER_METADATA,
    SHARE_MEMORY,
    UNKNOWN,
    Grant,
)
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.gateway.http.listener_state import Denied
from penstock.wire import grpc_health
from penstock.wire.aws.errors import AwsError
from penstock.wire.oip_messages import SERVICE

GrantOf = Callable[[str], Grant]

#: Health checks carry no credentials.
_OPEN: Final = frozenset({"ServerLive", "ServerReady"})
#: Each method as an operation of `core/request/grants.py`; methods with a name in their message
#: are checked again by `granted`.
_OPERATIONS: Final = {
    "ServerMetadata": SERVER_METADATA,
    "ModelInfer": INVOKE_ENDPOINT,
    "ModelStreamInfer": INVOKE_ENDPOINT,
    "ModelReady": MODEL_METADATA,
    "ModelMetadata": MODEL_METADATA,
    "ModelConfig": MODEL_METADATA,
    "ModelStatistics": MODEL_METADATA,
    "RepositoryIndex": LIST_SERVED_MODELS,
    "RepositoryModelLoad": LOAD_TARGET_MODEL,
    "RepositoryModelUnload": LOAD_TARGET_MODEL,
    "SystemSharedMemoryStatus": LIST_SERVED_MODELS,
    "SystemSharedMemoryRegister": SHARE_MEMORY,
    "SystemSharedMemoryUnregister": SHARE_MEMORY,
    "CudaSharedMemoryStatus": LIST_SERVED_MODELS,
    "CudaSharedMemoryRegister": SHARE_MEMORY,
    "CudaSharedMemoryUnregister": SHARE_MEMORY,
    "LogSettings": CHANGE_LOG,
    "TraceSetting": LIST_SERVED_MODELS,
}
_WITH_NAME: Final = frozenset({INVOKE_ENDPOINT, LOAD_TARGET_MODEL, MODEL_METADATA})

#: Grant of the call that this task serves; None without authentication.
_grant: ContextVar[Grant | None] = ContextVar("grant", default=None)


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Passes a call to its handler, or replaces the handler by one that refuses."""

    def __init__(
        self, grant_of: GrantOf | None, translate: Callable[[PenstockError], tuple[Any, str]]
    ) -> None:
        self._grant_of = grant_of
        self._translate = translate

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        service, _, method = str(details.method).lstrip("/").rpartition("/")
        if self._grant_of is not None and not _open(service, method, details):
            operation = _operation(service, method)
            try:
                grant = self._grant_of(_token(details.invocation_metadata))
                permit(
                    grant,
                    AccessRequest(operation, in_body="name" if operation in _WITH_NAME else ""),
                )
            except PenstockError as error:
                return self._refusing(error)
            except AwsError as error:
                return self._refusing(Denied(error.code, error.message))
            _grant.set(grant)
        return await continuation(details)

    def _refusing(self, error: PenstockError) -> Any:
        async def refuse(_requests: Any, context: Any) -> None:
            await context.abort(*self._translate(error))

        return grpc.stream_stream_rpc_method_handler(refuse)


def _open(service: str, method: str, details: Any) -> bool:
    """Whether the call needs no credentials. A health check may have some, to see models."""
    if service == grpc_health.SERVICE:
        return all(key.lower() != "authorization" for key, _ in details.invocation_metadata or ())
    return service == SERVICE and method in _OPEN


def _operation(service: str, method: str) -> str:
    if service == grpc_health.SERVICE:
        return MODEL_METADATA
    return _OPERATIONS.get(method, UNKNOWN) if service == SERVICE else UNKNOWN


def is_stranger() -> bool:
    """Whether the call of this task has no grant, as all have none without authentication."""
    return _grant.get() is None


def granted(operation: str, endpoint: str) -> None:
    """Returns if the call of this task is allowed to. Raises Denied."""
    grant = _grant.get()
    if grant is None or not grant.endpoints:
        return
    try:
        permit(grant, AccessRequest(operation, endpoint))
    except AwsError as error:
        raise Denied(error.code, error.message) from error


def _token(metadata: Any) -> str:
    for key, value in metadata or ():
        text = value if isinstance(value, str) else ""
        if key.lower() == "authorization" and text[:7].lower() == "bearer ":
            return text[7:].strip()
    raise Denied(
        "MissingAuthenticationTokenException",
        "The metadata has no authorization: Bearer ….",
        hint="Make a key with penstock keys create.",
    )


#: Messages received at once: by all connections, and by one.
RECEIVED_AT_ONCE_MAX: Final = 16
RECEIVED_AT_ONCE_OF_ONE: Final = 8
#: Bytes that a client may send of a message that is not requested yet.
LOOKAHEAD_BYTES: Final = 64 << 10
#: s. A message of 6 MiB takes this long at 25 Mbit/s.
PATIENCE_S: Final = 2.0
#: s. A message that takes longer is counted while it comes.
SLOW_S: Final = 0.05
#: What a call sends beside its messages: metadata, such as a token.
CALL_HEAD_BYTES: Final = 4 << 10


class _ReadingTurn:
    """A message that is being received."""

    __slots__ = ("began", "peer", "refused", "timeout")

    def __init__(self, peer: str, timeout: asyncio.Timeout, began: float) -> None:
        self.peer = peer
        self.timeout = timeout
        self.began = began
        self.refused = False  #: there is no room for more of it

    def cut(self) -> None:
        if not self.timeout.expired():
            self.refused = True
            self.timeout.reschedule(0.0)


class _Room:
    """Room for messages. The constructor raises NotNowError `bodies-too-large`."""

    __slots__ = ("_budget", "_bytes_held")

    def __init__(self, budget: BodyBudget, bytes_max: int) -> None:
        if not budget.take(bytes_max):
            raise too_large()
        self._budget = budget
        self._bytes_held = bytes_max

    def leave(self) -> None:
        """Gives the room back. Idempotent."""
        self._budget.give(self._bytes_held)
        self._bytes_held = 0


def too_large() -> NotNowError:
    return NotNowError(
        "bodies-too-large",
        "The bodies of all requests are as large as the server may hold.",
        hint="Try again shortly; limits.bodies_bytes_max is the setting.",
        retry_after_s=1.0,
    )


class Messages:
    """Iterates over the messages of a call; the room is given back after the last one.

    Raises NotNowError `bodies-too-large` where there is no room for more of the next message.
    """

    def __init__(
        self,
        requests: AsyncIterator[bytes],
        room: _Room,
        arrivals: Arrivals | None,
        peer: str,
    ) -> None:
        """`arrivals`: what comes is counted there; None: there is room for the largest message."""
        self._requests = requests
        self._room = room
        self._arrivals = arrivals
        self._awaited = AwaitedMessage(peer, self._cut)
        self._reading: asyncio.Task[Any] | None = None
        self._refused = False

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> bytes:
        self._reading = asyncio.current_task()
        try:
            message = await anext(self._requests)
        except asyncio.CancelledError:
            if self._refused:
                raise too_large() from None
            raise
        except StopAsyncIteration:
            self.close()
            raise
        finally:
            self._reading = None
        if self._arrivals is not None:
            self._arrivals.delivered(self._awaited.peer, len(message))
            self._arrivals.await_message(self._awaited)
        return message

    def begin(self) -> bool:
        """Counts from now on what comes. False: it can't be counted."""
        return self._arrivals is None or self._arrivals.await_message(self._awaited)

    def close(self) -> None:
        """Idempotent."""
        self._room.leave()
        if self._arrivals is not None:
            self._arrivals.ended(self._awaited)

    def _cut(self) -> None:
        if self._reading is not None and not self._refused:
            self._refused = True
            self._reading.cancel()


class MessageReader:
    """Receives messages for all calls of one server."""

    def __init__(self, budget: BodyBudget, message_bytes_max: int, timeout_s: float) -> None:
        """`timeout_s`: from the head of a call to the end of its first message."""
        self._budget = budget
        self._message_bytes_max = message_bytes_max
        self._timeout_s = timeout_s
        self._arrivals = Arrivals(budget, LOOKAHEAD_BYTES)
        # Half of the budget: the other doors need room as well.
        in_half = budget.bytes_max // (2 * message_bytes_max)
        self._uncounted_max = max(1, min(RECEIVED_AT_ONCE_MAX, in_half))
        self._turns: dict[_ReadingTurn, None] = {}  #: oldest first
        self._of_peer: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def first(self, requests: AsyncIterator[bytes], peer: str) -> bytes:
        """The first message of a call; `peer` is its connection.

        Raises:
            CallerError: `message-missing`, `message-too-slow`.
            NotNowError: `bodies-too-large`.
        """
        turn: _ReadingTurn | None = None
        try:
            async with asyncio.timeout(self._timeout_s) as timeout:
                await self._turn(peer)
                turn = _ReadingTurn(peer, timeout, asyncio.get_running_loop().time())
                self._turns[turn] = None
                if self._waiting:
                    self._hurry()  # whoever waits may have looked before this turn began
                try:
                    return await self._received(requests, turn)
                finally:
                    del self._turns[turn]
                    self._leave(peer)
        except StopAsyncIteration:
            raise CallerError("message-missing", "The call ended without a message.") from None
        except TimeoutError:
            if turn is not None and turn.refused:
                raise too_large() from None
            raise CallerError(
                "message-too-slow", "The message took too long to come.", status=408
            ) from None

    async def _received(self, requests: AsyncIterator[bytes], turn: _ReadingTurn) -> bytes:
        if not countable(turn.peer):
            room = _Room(self._budget, self._message_bytes_max)
            try:
                return await anext(requests)
            finally:
                room.leave()
        awaited = AwaitedMessage(turn.peer, turn.cut)
        rooms: list[_Room] = []
        slow = asyncio.get_running_loop().call_later(SLOW_S, self._is_slow, turn, awaited, rooms)
        try:
            message = await anext(requests)
        finally:
            slow.cancel()
            self._arrivals.ended(awaited)
            for room in rooms:
                room.leave()
        self._arrivals.delivered(turn.peer, len(message) + CALL_HEAD_BYTES)
        return message

    def _is_slow(self, turn: _ReadingTurn, awaited: AwaitedMessage, rooms: list[_Room]) -> None:
        """Counts what comes of a message. Where that can't be done, it takes room for the
        largest."""
        if self._arrivals.await_message(awaited):
            return
        try:
            rooms.append(_Room(self._budget, self._message_bytes_max))
        except NotNowError:
            turn.cut()

    @contextlib.contextmanager
    def stream(self, requests: AsyncIterator[bytes], peer: str) -> Iterator[Messages]:
        """All messages of a call of many.

        Raises:
            NotNowError: `bodies-too-large`.
        """
        messages = None
        if countable(peer):
            room = _Room(self._budget, LOOKAHEAD_BYTES)
            messages = Messages(requests, room, self._arrivals, peer)
            if not messages.begin():
                messages.close()
                messages = None
        if messages is None:
            room = _Room(self._budget, self._message_bytes_max)
            messages = Messages(requests, room, None, peer)
        try:
            yield messages
        finally:
            messages.close()

    async def _turn(self, peer: str) -> None:
        """Returns when it is this call's turn, which `_leave` ends."""
        if self._admits(peer):  # this overtakes nobody: whoever could be admitted already is
            self._of_peer[peer] += 1
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((peer, future))
        self._hurry()
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled():
                self._leave(peer)
            else:
                self._waiting.remove((peer, future))
            raise

    def _admits(self, peer: str) -> bool:
        at_once_max = RECEIVED_AT_ONCE_MAX if countable(peer) else self._uncounted_max
        at_once = self._of_peer.total()
        return at_once < at_once_max and self._of_peer[peer] < RECEIVED_AT_ONCE_OF_ONE

    def _leave(self, peer: str) -> None:
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]
        for waiting in list(self._waiting):
            name, future = waiting
            if self._of_peer.total() >= RECEIVED_AT_ONCE_MAX:
                break
            if self._admits(name) and not future.done():
                self._waiting.remove(waiting)
                self._of_peer[name] += 1
                future.set_result(None)
        if self._waiting:
            self._hurry()

    def _hurry(self) -> None:
        """Ends turns that have had enough time, for calls that wait because of other
        connections."""
        kept_out = {
            peer for peer, _ in self._waiting if self._of_peer[peer] < RECEIVED_AT_ONCE_OF_ONE
        }
        for turn in self._turns if kept_out else ():
            if kept_out == {turn.peer}:
                continue
            limit = turn.began + PATIENCE_S
            when = turn.timeout.when()
            if when is not None and when > limit and not turn.timeout.expired():
                turn.timeout.reschedule(max(limit, asyncio.get_running_loop().time()))
