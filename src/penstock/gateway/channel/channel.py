"""One end of a channel: sends and receives events and requests. Both ends are alike.

Events (`tell`) are handled as they arrive, in the order in which they were sent. Requests (`ask`)
are begun in that order at the next turn of the loop, and answered when they are done. A torn
message ends the channel, as the end of the other process does: all open requests then fail.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol, cast

from penstock.errors import InternalError, NotNowError, PenstockError, from_dict
from penstock.gateway.channel import messages
from penstock.gateway.channel.messages import Json
from penstock.wire.frames import Frame

log = logging.getLogger(__name__)


class Hearer(Protocol):
    """The receiver of messages at an end of a channel."""

    def told(self, op: str, fields: Json, data: bytes) -> None:
        """Handles an event. Must not raise: an exception ends the channel."""

    async def asked(self, op: str, fields: Json) -> Json:
        """The answer to a request; a raised PenstockError goes to the sender of the request."""

    def closed(self) -> None:
        """The channel has ended. Called once."""


class Channel(asyncio.Protocol):
    """Make one with `open_channel`."""

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer
        self._decoder = messages.decoder()
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def tell(self, op: str, fields: Json | None = None, data: bytes = b"") -> None:
        """Sends an event. It is lost if the channel has ended."""
        self._write(messages.TELL, 0, {**(fields or {}), "op": op}, data)

    async def ask(self, op: str, fields: Json | None = None, *, timeout_s: float) -> Json:
        """Sends a request and returns its answer.

        Raises the error of the other end; NotNowError: `process-gone` if the channel has ended or
        ends, `process-silent` if no answer comes in time.
        """
        if self._transport is None:
            raise _gone()
        self._number += 1
        number = self._number
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._write(messages.ASK, number, {**(fields or {}), "op": op})
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise NotNowError(
                "process-silent", f"another process of this server has not answered {op!r} in time"
            ) from None
        finally:
            self._asked.pop(number, None)
        if "error" in answer:
            raise from_dict(answer["error"])
        return dict(answer["ok"])

    def close(self) -> None:
        """Sends what is buffered and ends the channel. Idempotent."""
        if self._transport is not None:
            self._transport.close()

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        asked, self._asked = self._asked, {}
        for future in asked.values():
            if not future.done():
                future.set_exception(_gone())
        for task in self._answering:
            task.cancel()
        self._hearer.closed()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except Exception:
            log.exception("what another process of this server says can't be understood")
            if self._transport is not None:
                self._transport.abort()

    def _take(self, frame: Frame) -> None:
        fields, data = messages.decode(frame.payload)
        if frame.kind == messages.ANSWER:
            future = self._asked.get(frame.ident)
            if future is not None and not future.done():
                future.set_result(fields)
            return
        op = str(fields.pop("op", ""))
        if frame.kind == messages.TELL:
            self._hearer.told(op, fields, data)
            return
        task = asyncio.get_running_loop().create_task(self._answer(frame.ident, op, fields))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, number: int, op: str, fields: Json) -> None:
        answer: Json
        try:
            answer = {"ok": await self._hearer.asked(op, fields)}
        except PenstockError as error:
            answer = {"error": error.to_dict()}
        except Exception:
            log.exception("%s, which another process of this server asked for, failed", op)
            answer = {"error": InternalError("internal", f"{op} failed").to_dict()}
        self._write(messages.ANSWER, number, answer)

    def _write(self, kind: int, number: int, fields: Json, data: bytes = b"") -> None:
        if self._transport is not None:
            self._transport.write(messages.encode(kind, number, fields, data))


async def open_channel(end: socket.socket, hearer: Hearer) -> Channel:
    """A channel over one socket of a connected pair; it closes the socket when it ends."""
    end.setblocking(False)
    channel = Channel(hearer)
    await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=end)
    return channel


def _gone() -> NotNowError:
    return NotNowError("process-gone", "another process of this server has ended")
