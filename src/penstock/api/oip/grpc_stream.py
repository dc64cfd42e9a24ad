"""ModelStreamInfer: several requests on one call, each with one answer or with many.

Requests run concurrently. Pieces of a streamed answer leave as soon as the model makes them. Whole
answers keep the order of their requests, which clients without ids rely on, but never wait for an
answer that has begun to stream. A failed request is reported in its place and ends nothing else.

If a client stops reading, its requests are no longer read, and it is cut off when too much waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from penstock.api.oip.protobuf_scan import (
    InferNames,
    final_answer,
    says_final,
    stream_answer,
    stream_error,
)
from penstock.errors import PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation, Responder
from penstock.wire.frames import Reply

log = logging.getLogger(__name__)

#: Requests of one call in flight; flow control makes the client wait with more.
REQUESTS_MAX = 64
#: Unread answers: above the first bound requests are no longer read, above the second the call
#: ends.
UNREAD_BYTES_PAUSE = 1 << 20
UNREAD_BYTES_MAX = 16 << 20

#: Makes the invocation for one message; raises PenstockError.
Begin = Callable[[bytes, Responder], tuple[Invocation, InferNames]]


class _StreamTurn:
    """One request of the call."""

    __slots__ = ("answers", "done", "final", "invocation", "names", "streams")

    def __init__(self, names: InferNames) -> None:
        self.names = names
        self.invocation: Invocation | None = None
        self.streams = False  #: whether its first piece has left
        #: whether the latest piece is the last one; None: it does not say
        self.final: bool | None = None
        self.done = False
        self.answers: list[bytes] = []  #: kept until the request's turn


class InferStream:
    """The responder for one call's requests. `run` serves the call."""

    def __init__(
        self, dispatcher: Dispatcher, begin: Begin, error_text: Callable[[PenstockError], str]
    ) -> None:
        self._dispatcher = dispatcher
        self._begin = begin
        self._error_text = error_text
        self._turns: deque[_StreamTurn] = (
            deque()
        )  #: requests whose answers others wait for, in order of arrival
        self._live: set[Invocation] = set()
        self._out: deque[tuple[bytes, Invocation | None]] = deque()
        self._out_bytes = 0
        self._ended = False  #: the client sends no more requests
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def run(
        self, requests: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Returns when all requests are answered; cancelling it cancels those in flight.

        It cancels itself if the client does not read, because a write would then wait for ever.
        """
        self._task = asyncio.current_task()
        reader = asyncio.get_running_loop().create_task(self._read(requests))
        try:
            while True:
                if self._out:
                    await self._write_one(write)
                elif self._ended and not self._live and not self._turns:
                    break
                else:
                    self._changed.clear()
                    await self._changed.wait()
            await reader  # it is done; this raises its error
        finally:
            reader.cancel()
            for invocation in list(self._live):
                self._dispatcher.cancel(invocation)
            for _, written in self._out:
                if written is not None:
                    self._dispatcher.written(written)

    async def _write_one(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        message, written = self._out.popleft()
        self._out_bytes -= len(message)
        try:
            if message:
                await write(message)
        finally:
            if written is not None:
                self._dispatcher.written(written)
        self._room.set()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for request in requests:
                self._take(request)
                while len(self._live) >= REQUESTS_MAX or self._out_bytes > UNREAD_BYTES_PAUSE:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._ended = True
            self._changed.set()

    def _take(self, request: bytes) -> None:
        turn = _StreamTurn(InferNames("", "", ""))
        self._turns.append(turn)
        try:
            invocation, turn.names = self._begin(request, self)
        except PenstockError as error:
            self._close(turn, stream_error(self._error_text(error)))
            return
        turn.invocation = invocation
        invocation.context = turn
        self._live.add(invocation)
        self._dispatcher.invoke(invocation)

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        turn: _StreamTurn = invocation.context
        answer = reply.body
        if turn.names.wants_final and says_final(answer) is None:
            answer = final_answer(answer, final=True)
        self._close(turn, stream_answer(answer))

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        turn: _StreamTurn = invocation.context
        if not turn.streams:
            turn.streams = True
            self._turns.remove(turn)
            self._release()
        if chunk:
            turn.final = says_final(chunk)
            answer = chunk if turn.final is not None else final_answer(chunk, final=False)
            self._put(stream_answer(answer), None)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        turn: _StreamTurn = invocation.context
        names = turn.names
        if (names.wants_final and not turn.final) or not turn.streams:
            empty = names.answer_without_outputs()
            self._close(turn, stream_answer(final_answer(empty, final=True)))
        else:
            self._close(turn, b"")

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        turn: _StreamTurn = invocation.context
        self._close(turn, stream_error(self._error_text(error), turn.names.id))

    # Order

    def _close(self, turn: _StreamTurn, last: bytes) -> None:
        turn.done = True
        turn.answers.append(last)
        if turn.streams:
            self._finish(turn)
        else:
            self._release()

    def _release(self) -> None:
        """Sends whole answers that no earlier request holds up any more."""
        while self._turns and self._turns[0].done:
            self._finish(self._turns.popleft())

    def _finish(self, turn: _StreamTurn) -> None:
        invocation = turn.invocation
        if invocation is not None:
            self._live.discard(invocation)
            self._room.set()
        for answer in turn.answers:
            self._put(answer, invocation)

    def _put(self, message: bytes, written: Invocation | None) -> None:
        """Queues a message; `written` is done once the queue up to here has left."""
        self._out.append((message, written))
        self._out_bytes += len(message)
        self._changed.set()
        if self._out_bytes > UNREAD_BYTES_MAX and self._task is not None:
            log.warning("a client does not read the answers of its stream: call cut")
            self._task.cancel()
