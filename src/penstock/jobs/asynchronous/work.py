"""Processes one asynchronous request: its input read, computed by a copy, its outcome written.

Which requests are processed, and when, is decided by the driver's state machine. Here their memory
is bounded: the bytes of bodies that are there at once, however many requests wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from penstock.clock import Clock
from penstock.control.store.store_thread import StoreThread
from penstock.core.blame.poison_requests import SUSPECTED
from penstock.errors import PenstockError
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.jobs.asynchronous import outcome, rows
from penstock.jobs.asynchronous.objects import Objects
from penstock.jobs.asynchronous.rows import AsyncRequest, Notification
from penstock.wire.frames import (
    Reply,
    decode_reply_meta,
    decode_request_meta,
    encode_request_meta,
)


class BytesRoom:
    """A counter of bytes; first come, first served. A size above the total never fits. For one
    event loop."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.bytes_peak = 0  #: the highest use so far
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Returns once there is room for `size` bytes, which is at most `bytes_max`."""
        assert size <= self.bytes_max
        if self._waiting or self.bytes_used + size > self.bytes_max:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, future))
            try:
                await future
            except asyncio.CancelledError:
                # It got its room while it was being cancelled: give it back
                if future.done() and not future.cancelled():
                    self.give(size)
                raise
        else:
            self._add(size)

    def add(self, size: int) -> None:
        """Counts bytes that are in memory already, even where there is no room for them."""
        self._add(size)

    def give(self, size: int) -> None:
        """Releases bytes that were taken or added."""
        self.bytes_used -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
            elif self.bytes_used + wanted <= self.bytes_max:
                self._waiting.popleft()
                self._add(wanted)
                future.set_result(None)
            else:
                break

    def _add(self, size: int) -> None:
        self.bytes_used += size
        self.bytes_peak = max(self.bytes_peak, self.bytes_used)


_log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0  #: pause before the next attempt when the database failed
#: The lowest priority: after everything else that the copy has to do.
PRIORITY_LAST: Final = 255
#: Reading and writing wait for disks and networks, so there are more threads than cores.
_THREADS: Final = 16
#: Answers that can't be written take at most 1/_KEPT_PART of the room for bodies.
_KEPT_PART: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


async def until_done(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeats `attempt` until it succeeds: giving up would leave requests that nobody looks at any
    more."""
    while True:
        try:
            return await attempt()
        except PenstockError as error:
            _log.warning("asynchronous requests: %s: %s", error.code, error.message)
        except Exception:
            _log.exception("the record of asynchronous requests could not be used")
        await asyncio.sleep(AGAIN_S)


class RequestWork:
    """Processes the requests of one server."""

    def __init__(
        self,
        *,
        database: StoreThread,
        dispatcher: Dispatcher,
        objects: Objects,
        clock: Clock,
        bytes_max: int,
        region: str,
    ) -> None:
        """`bytes_max`: the room for bodies in memory."""
        self.room = BytesRoom(bytes_max)
        self._kept_bytes = 0
        self._database = database
        self._dispatcher = dispatcher
        self._objects = objects
        self._clock = clock
        self._region = region
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-async")

    def close(self) -> None:
        """Finishes running writes; begins nothing new."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def insist(self, method: Callable[..., T], *args: Any) -> T:
        """Calls a method of the database, and repeats the call until it succeeds."""
        return await until_done(lambda: self._database.call(method, *args))

    async def request(self, number: int) -> AsyncRequest | None:
        """The request on record; None: it is no longer there."""
        return await self.insist(rows.request, number)

    async def check_writable(self, uri: str) -> None:
        """Raises PenstockError: `output-unwritable`, `output-unreachable`."""
        await self._in_thread(self._objects.check_writable, uri)

    async def computed(
        self, request: AsyncRequest, number: int, timeout_s: float, *, suspect: bool = False
    ) -> Reply:
        """The answer of a copy. Raises PenstockError. A `suspect` runs in no batch with others."""
        size = request.body_bytes
        if request.input_uri:
            size = await self._in_thread(
                self._objects.size, request.input_uri, bytes_max=self.room.bytes_max
            )
        await self.room.take(size)
        try:
            meta, body = await self._input(request, number, size)
            now = self._clock.monotonic()
            awaited = AwaitedReply(self._dispatcher)
            model = decode_request_meta(meta).target_model
            invocation = Invocation(
                request.endpoint,
                meta,
                body,
                awaited,
                received=now,
                deadline=now + timeout_s,
                priority=PRIORITY_LAST,
                door="async",
            )
            if model is not None:
                invocation.affinity = Affinity(model=model)
            if suspect:
                invocation.past = SUSPECTED
            invocation.stream = StreamObserved.taking(timeout_s)
            reply = await awaited.get(invocation)
            self._dispatcher.written(invocation)
            return reply
        finally:
            self.room.give(size)

    async def _input(self, request: AsyncRequest, number: int, size: int) -> tuple[bytes, bytes]:
        """The request metadata for the model, and the body."""
        if not request.input_uri:
            return request.meta, await self.insist(rows.body, number)
        body, content_type = await self._in_thread(
            self._objects.read, request.input_uri, bytes_max=size
        )
        if not content_type or request.content_type:
            return request.meta, body
        # The Python SDK sets the content type when it uploads the input, and not in the request.
        meta = decode_request_meta(request.meta)._replace(content_type=content_type)
        return encode_request_meta(meta), body

    async def written(
        self, request: AsyncRequest, number: int, reply: Reply
    ) -> Notification | None:
        """Writes an output. Returns its notification, None where nobody is notified. Raises
        PenstockError."""
        content_type = decode_reply_meta(reply.meta).content_type or ""
        answer = reply.body
        self.room.add(len(answer))
        try:
            await self._write(request.output_uri, answer, number, content_type)
        finally:
            self.room.give(len(answer))
        now = self._clock.wall()
        return outcome.succeeded(
            request, number, answer, content_type, region=self._region, now=now
        )

    def keep(self, reply: Reply) -> bool:
        """Whether there is room to keep an answer that can't be written now; release it with
        `let_go`. Such answers get only a part of the room, so that one full disk does not block all
        requests."""
        size = len(reply.body)
        if self._kept_bytes + size > self.room.bytes_max // _KEPT_PART:
            return False
        self._kept_bytes += size
        self.room.add(size)
        return True

    def let_go(self, reply: Reply) -> None:
        """Releases the room of an answer that was kept."""
        self._kept_bytes -= len(reply.body)
        self.room.give(len(reply.body))

    async def failure_written(
        self, request: AsyncRequest, number: int, reason: str, error: PenstockError
    ) -> None:
        """Writes the object of a failure, if the request asks for one. Raises PenstockError."""
        if request.failure_uri:
            body = outcome.failure_body(reason, error, request)
            await self._write(request.failure_uri, body, number, "application/json")

    def failure_told(
        self, request: AsyncRequest, number: int, reason: str, error: PenstockError
    ) -> Notification | None:
        """The notification of a failure; None where nobody is notified."""
        body = outcome.failure_body(reason, error, request)
        now = self._clock.wall()
        return outcome.failed(request, number, error, body, region=self._region, now=now)

    async def _write(self, uri: str, data: bytes, number: int, content_type: str) -> None:
        await self._in_thread(
            self._objects.write, uri, data, draft=str(number), content_type=content_type
        )

    async def _in_thread(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: method(*args, **kwargs))
