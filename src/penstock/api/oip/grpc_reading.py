"""Receives the messages of gRPC calls within bounds: how many at once, and for how long.

grpcio delivers a message only as a whole, and lets the client send all of it as soon as it is
requested. So memory is bounded by the number of requested messages: each reserves room for the
largest message while it is received. A call that waits for its turn holds only what the client may
send early (`LOOKAHEAD_BYTES`), and one connection can't take every turn. If connections wait, a
message that has been arriving for `PATIENCE_S` is given up: small messages take no time.

A call of many messages may be idle between two of them for any time. It keeps its reserved room
meanwhile, and is refused if there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from penstock.core.request.body_budget import BodyBudget
from penstock.errors import CallerError, NotNowError

#: Messages received at once: by all connections, and by one.
RECEIVED_AT_ONCE_MAX: Final = 16
RECEIVED_AT_ONCE_OF_ONE: Final = 8
#: Bytes that a client may send of a message that is not requested yet.
LOOKAHEAD_BYTES: Final = 64 << 10
#: s. A message of 6 MiB takes this long at 25 Mbit/s.
PATIENCE_S: Final = 2.0


class _ReadingTurn:
    """A message that is being received."""

    __slots__ = ("began", "peer", "timeout")

    def __init__(self, peer: str, timeout: asyncio.Timeout, began: float) -> None:
        self.peer = peer
        self.timeout = timeout
        self.began = began


class _Room:
    """Room for one message. The constructor raises NotNowError `bodies-too-large`."""

    __slots__ = ("_budget", "_bytes_held")

    def __init__(self, budget: BodyBudget, bytes_max: int) -> None:
        if not budget.take(bytes_max):
            raise NotNowError(
                "bodies-too-large",
                "The bodies of all requests are as large as the server may hold.",
                hint="Try again shortly.",
                retry_after_s=1.0,
            )
        self._budget = budget
        self._bytes_held = bytes_max

    def leave(self) -> None:
        """Gives the room back. Idempotent."""
        self._budget.give(self._bytes_held)
        self._bytes_held = 0


class Messages:
    """Iterates over the messages of a call; the room is given back after the last one."""

    def __init__(self, first: bytes, rest: AsyncIterator[bytes], room: _Room) -> None:
        self._first: bytes | None = first
        self._rest = rest
        self._room = room

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return await anext(self._rest)
        except StopAsyncIteration:
            self._room.leave()
            raise


class MessageReader:
    """Receives messages for all calls of one server."""

    def __init__(self, budget: BodyBudget, message_bytes_max: int, timeout_s: float) -> None:
        """`timeout_s`: from the head of a call to the end of its first message."""
        self._budget = budget
        self._message_bytes_max = message_bytes_max
        self._timeout_s = timeout_s
        self._turns: dict[_ReadingTurn, None] = {}  #: oldest first
        self._of_peer: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def first(self, requests: AsyncIterator[bytes], peer: str) -> bytes:
        """The first message of a call; `peer` is its connection.

        Raises:
            CallerError: `message-missing`, `message-too-slow`.
            NotNowError: `bodies-too-large`.
        """
        try:
            async with asyncio.timeout(self._timeout_s) as timeout:
                await self._turn(peer)
                turn = _ReadingTurn(peer, timeout, asyncio.get_running_loop().time())
                self._turns[turn] = None
                try:
                    room = _Room(self._budget, self._message_bytes_max)
                    try:
                        return await anext(requests)
                    finally:
                        room.leave()
                finally:
                    del self._turns[turn]
                    self._leave(peer)
        except StopAsyncIteration:
            raise CallerError("message-missing", "The call ended without a message.") from None
        except TimeoutError:
            raise CallerError(
                "message-too-slow", "The message took too long to come.", status=408
            ) from None

    @contextlib.contextmanager
    def following(self, first: bytes, requests: AsyncIterator[bytes]) -> Iterator[Messages]:
        """All messages of a call, the first one included.

        Raises:
            NotNowError: `bodies-too-large`.
        """
        room = _Room(self._budget, self._message_bytes_max)
        try:
            yield Messages(first, requests, room)
        finally:
            room.leave()

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
        at_once = self._of_peer.total()
        return at_once < RECEIVED_AT_ONCE_MAX and self._of_peer[peer] < RECEIVED_AT_ONCE_OF_ONE

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
