"""The outcome of an invocation as one whole, and awaited, where there is a task per request."""

from __future__ import annotations

import asyncio

from penstock.errors import ModelError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.wire.frames import Reply

#: Size limit of a streamed answer that is joined for a caller that wants it whole.
ANSWER_BYTES_MAX = 1 << 30


class JoinedAnswer:
    """Joins the parts of a streamed answer, for a caller that wants it whole."""

    __slots__ = ("_chunk_bytes", "_chunks", "_meta")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._meta = b""

    def add(self, chunk: bytes, meta: bytes | None) -> None:
        """Raises ModelError: it is too large."""
        if meta is not None:
            self._meta = meta
        self._chunk_bytes += len(chunk)
        if self._chunk_bytes > ANSWER_BYTES_MAX:
            self._chunks = []
            raise ModelError(
                "answer-too-large",
                f"The whole answer is larger than {ANSWER_BYTES_MAX} bytes.",
                hint="Ask for a stream.",
            )
        self._chunks.append(chunk)

    def whole(self, reply: Reply) -> Reply:
        """`reply`: what came at the end of the stream."""
        return reply._replace(meta=self._meta or reply.meta, body=b"".join(self._chunks))


class AwaitedReply:
    """The responder of one invocation; `get` returns its reply.

    A door makes the invocation with this as `responder`, calls `get`, and calls
    `Dispatcher.written` when the last byte has left.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._joined = JoinedAnswer()

    async def get(self, invocation: Invocation) -> Reply:
        """Sends the invocation and waits. Cancelling this cancels the request everywhere.

        Raises:
            PenstockError: it was refused or has failed; the door need not call `written`.
        """
        self._dispatcher.invoke(invocation)
        try:
            return await self._future
        except asyncio.CancelledError:
            self._dispatcher.cancel(invocation)
            raise
        except PenstockError:
            self._dispatcher.written(invocation)
            raise

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        if not self._future.done():
            self._future.set_result(reply)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        self._joined.add(chunk, meta)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        self.on_reply(invocation, self._joined.whole(reply))

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
