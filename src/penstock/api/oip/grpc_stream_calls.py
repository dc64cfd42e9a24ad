"""gRPC calls with many messages each way.

A call is a task, which reads messages as it is ready for them: what it has not read is not
acknowledged, so the client waits, and is taken from the budget for bodies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from penstock.api.oip.grpc_calls import CallBounds, GrpcCall, missing, too_slow
from penstock.core.request.grants import Grant
from penstock.gateway.http2.exchange import Http2Carrier
from penstock.wire.grpc_messages import GrpcFault, GrpcMessage, PackedMessage
from penstock.wire.http2.events import RequestReceived


class StreamCall(GrpcCall):
    """Messages both ways: `serve` reads them by iteration, and writes. It is a task of its own."""

    __slots__ = (
        "_changed", "_complete", "_inflating_bytes", "_messages", "_messages_bytes",
        "_unread_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: Http2Carrier,
        request: RequestReceived,
        bounds: CallBounds,
        grant: Grant | None,
        serve: Callable[[StreamCall], Awaitable[None]],
    ) -> None:
        super().__init__(connection, request, bounds, grant)
        self._messages: deque[GrpcMessage] = deque()  #: complete, and not read by `serve`
        self._messages_bytes = 0
        self._inflating_bytes = 0  #: of the message that `serve` waits for
        self._unread_bytes = 0  #: of the windows: acknowledged once `serve` has caught up
        self._complete = False  #: the client sends no more
        self._changed = asyncio.Event()  #: a message, the end, or room for more of the answer
        self.run(self._served(serve))

    async def _served(self, serve: Callable[[StreamCall], Awaitable[None]]) -> None:
        await serve(self)
        self.succeed()

    # For `serve`

    def __aiter__(self) -> StreamCall:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._complete:
                raise StopAsyncIteration
            await self._change()
        message = self._messages.popleft()
        self._messages_bytes -= _size(message)
        if isinstance(message, PackedMessage):
            message = await self.inflated(message)
            self._inflating_bytes = 0
        self._hold_messages()
        if not self._messages and self._unread_bytes:
            self.acknowledge(self._unread_bytes)
            self._unread_bytes = 0
        return message

    async def first(self) -> bytes:
        """The first message. Raises CallerError: `message-missing`, `message-too-slow`."""
        try:
            async with asyncio.timeout(self._bounds.timeout_s):
                return await anext(self)
        except StopAsyncIteration:
            raise missing() from None
        except TimeoutError:
            raise too_slow() from None

    async def write(self, message: bytes) -> None:
        """Returns once the client's windows and the socket have taken it."""
        self.answer(message)
        while self.waits:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # Of an exchange

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        splitter = self._splitter
        if splitter is None:
            self.acknowledge(flow_bytes)
            return
        try:
            messages = splitter.feed(data)
        except GrpcFault as fault:
            self.fail_with(fault.status, fault.words)
            return
        for message in messages:
            self._messages.append(message)
            self._messages_bytes += _size(message)
        self._unread_bytes += flow_bytes
        if self._messages:
            self._changed.set()
        else:
            self.acknowledge(self._unread_bytes)
            self._unread_bytes = 0
        self._hold_messages()

    def hold_inflating(self, size: int) -> bool:
        self._inflating_bytes = size
        return self._hold_messages()

    def _hold_messages(self) -> bool:
        splitter = self._splitter
        if splitter is None:
            return False
        unfinished = splitter.held_bytes + self._inflating_bytes
        return self.hold(unfinished + self._messages_bytes, unfinished=unfinished > 0)

    def on_complete(self) -> None:
        try:
            if self._splitter is not None:
                self._splitter.finish()
        except GrpcFault as fault:
            self.fail_with(fault.status, fault.words)
            return
        self._complete = True
        self._changed.set()

    def on_room(self) -> None:
        self._changed.set()


def _size(message: GrpcMessage) -> int:
    return message.held_bytes if isinstance(message, PackedMessage) else len(message)
