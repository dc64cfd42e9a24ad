"""ModelStreamInfer: several requests on one call, each with one answer or with many.

Requests run concurrently. Pieces of a streamed answer leave as soon as the model makes them. Whole
answers keep the order of their requests, which clients without ids rely on, but never wait for an
answer that has begun to stream. A failed request is reported in its place and ends nothing else.

If a client reads slowly, its requests are no longer read, and models that stream are asked to wait.
It is cut off when too much waits all the same, or when it reads nothing while a model waits for it.

The names at the front of a `ModelInferRequest` are read without parsing its tensors: the gateway
only needs the model's name, and the instance parses the message, once. Field numbers are the
protocol's; the encoding is protobuf's (protobuf.dev, "Encoding").
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation, Responder
from penstock.wire.frames import Reply
from penstock.wire.protobuf_fields import BYTES, TooManyFieldsError, bytes_field, fields_of

_MODEL_NAME, _MODEL_VERSION, _ID, _PARAMETERS = 1, 2, 3, 4
#: An entry of `parameters` as protobuf writes it: a key, and a value that is true.
_WANTS_FINAL = b"\x0a\x22triton_enable_empty_final_response\x12\x02\x08\x01"
_FINAL = b"\x22\x1b\x0a\x15triton_final_response\x12\x02\x08"


class InferNames(NamedTuple):
    """The scalar fields of a request."""

    model: str
    version: str
    id: str
    wants_final: bool = False  #: an answer in pieces ends with an empty one that marks the end

    def answer_without_outputs(self) -> bytes:
        """A `ModelInferResponse` to the request, without content."""
        fields = ((_MODEL_NAME, self.model), (_MODEL_VERSION, self.version or "1"), (_ID, self.id))
        return b"".join(bytes_field(number, text.encode()) for number, text in fields if text)


def infer_names(message: bytes) -> InferNames:
    """The names. Raises CallerError for bytes that are no protobuf message."""
    found = {_MODEL_NAME: "", _MODEL_VERSION: "", _ID: ""}
    wants_final = False
    try:
        for field, kind, _, begin, end in fields_of(message):
            if kind != BYTES:
                continue
            if field in found:
                found[field] = message[begin:end].decode()
            elif field == _PARAMETERS and message[begin:end] == _WANTS_FINAL:
                wants_final = True
    except TooManyFieldsError as error:
        raise CallerError("bad-protobuf", f"The message has {error}.") from None
    except ValueError:  # which text that is not UTF-8 is, too
        raise CallerError("bad-protobuf", "The message is not a ModelInferRequest.") from None
    return InferNames(found[_MODEL_NAME], found[_MODEL_VERSION], found[_ID], wants_final)


def stream_answer(reply: bytes) -> bytes:
    """A `ModelStreamInferResponse` around the bytes of a `ModelInferResponse`."""
    return bytes_field(2, reply)


def stream_error(message: str, ident: str = "") -> bytes:
    """A `ModelStreamInferResponse` with an error and the id of its request."""
    error = bytes_field(1, message.encode())
    return error + stream_answer(bytes_field(_ID, ident.encode())) if ident else error


def says_final(reply: bytes) -> bool | None:
    """Whether a `ModelInferResponse` is marked as final; None where it has no mark."""
    if _FINAL not in reply:
        return None
    return _FINAL + b"\x01" in reply


def final_answer(reply: bytes, *, final: bool) -> bytes:
    """A `ModelInferResponse` with a mark whether it is the last piece of its answer."""
    return reply + _FINAL + (b"\x01" if final else b"\x00")


log = logging.getLogger(__name__)

#: Requests of one call in flight; flow control makes the client wait with more.
REQUESTS_MAX = 64
#: Unread answers: above the first bound requests are no longer read and streams wait, above the
#: second the call ends; but some of the largest pieces may be under way before a model waits.
UNREAD_BYTES_PAUSE = 1 << 20
UNREAD_BYTES_MAX = 16 << 20
PIECES_UNDER_WAY_MAX = 4
#: While a model waits: time for one piece to be read, and what a slow client reads in a second.
UNREAD_S_MAX = 30.0
READ_BYTES_PER_S_MIN = 64 << 10

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
        self._piece_bytes_max = 0
        self._paced: set[Invocation] = set()  #: whose models wait until the client has read
        self._writing: tuple[asyncio.Timeout, int] | None = None  #: the piece being written
        self._failure: PenstockError | None = None  #: why the call is cut
        self._ended = False  #: the client sends no more requests
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def run(
        self, requests: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Returns when all requests are answered; cancelling it cancels those in flight.

        It cancels itself if the client does not read, because a write would then wait for ever.

        Raises CallerError (`stream-unread`) then, and what `requests` raises.
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
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            reader.cancel()
            for invocation in list(self._live):
                self._dispatcher.cancel(invocation)
            for _, written in self._out:
                if written is not None:
                    self._dispatcher.written(written)

    async def _write_one(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        message, written = self._out.popleft()
        try:
            if message:
                async with asyncio.timeout(None) as limit:
                    self._writing = limit, len(message)
                    if self._paced:
                        self._limit_write()
                    await write(message)
        except TimeoutError:
            raise _unread() from None
        finally:
            self._writing = None
            self._out_bytes -= len(message)
            if written is not None:
                self._dispatcher.written(written)
        if self._out_bytes <= UNREAD_BYTES_PAUSE:
            paced, self._paced = self._paced, set()
            for invocation in paced:
                invocation.pace(waits=False)
        self._room.set()

    def _pace(self, invocation: Invocation) -> None:
        """Its model is to wait until the client has read what is there."""
        if invocation not in self._paced:
            invocation.pace(waits=True)
            self._paced.add(invocation)
            self._limit_write()

    def _limit_write(self) -> None:
        """A client that has stopped must not keep models waiting."""
        if self._writing is not None and self._writing[0].when() is None:
            limit, size = self._writing
            limit_s = UNREAD_S_MAX + size / READ_BYTES_PER_S_MIN
            limit.reschedule(asyncio.get_running_loop().time() + limit_s)

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for request in requests:
                self._take(request)
                while len(self._live) >= REQUESTS_MAX or self._out_bytes > UNREAD_BYTES_PAUSE:
                    self._room.clear()
                    await self._room.wait()
        except NotNowError as error:  # there is no room for more of what the client sends
            self._cut(error)
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
        if says_final(answer) is None:  # as Triton, which marks every message of a stream
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
            if self._out_bytes > UNREAD_BYTES_PAUSE:
                self._pace(invocation)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        turn: _StreamTurn = invocation.context
        names = turn.names
        if names.wants_final and not turn.final:
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
        # The two name each other, and would keep the answers for the collector of cycles.
        invocation, turn.invocation = turn.invocation, None
        if invocation is not None:
            self._live.discard(invocation)
            self._paced.discard(invocation)
            self._room.set()
        for answer in turn.answers:
            self._put(answer, invocation)

    def _put(self, message: bytes, written: Invocation | None) -> None:
        """Queues a message; `written` is done once the queue up to here has left."""
        self._out.append((message, written))
        self._out_bytes += len(message)
        self._piece_bytes_max = max(self._piece_bytes_max, len(message))
        self._changed.set()
        most = max(UNREAD_BYTES_MAX, PIECES_UNDER_WAY_MAX * self._piece_bytes_max)
        if self._out_bytes > most:
            self._cut(_unread())

    def _cut(self, failure: PenstockError) -> None:
        """Ends the call, even while a write waits for the client."""
        if self._task is not None and self._failure is None:
            log.warning("a stream is cut: %s", failure.message)
            self._failure = failure
            self._task.cancel()


def _unread() -> CallerError:
    return CallerError(
        "stream-unread",
        "The answers of the stream were not read: too many wait, or one for too long.",
        hint="Read them as they come, or ask for fewer at once.",
        status=408,
    )
