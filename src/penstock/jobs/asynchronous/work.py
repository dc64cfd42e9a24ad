"""One asynchronous request, carried out: its input read, computed by a copy, its outcome written.

Which requests are, and when, is the driver's to ask the machine. What is in memory of them is
bounded here.
"""

from __future__ import annotations

import asyncio
import logging
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
from penstock.jobs.asynchronous.room import BytesRoom
from penstock.jobs.asynchronous.rows import AsyncRequest, Notification
from penstock.wire.frames import (
    Reply,
    decode_reply_meta,
    decode_request_meta,
    encode_request_meta,
)

_log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0  #: after the database could not be used
#: Behind whatever else its copy has to do.
PRIORITY_LAST: Final = 255
#: Reading and writing wait for disks and networks, not for the processor.
_THREADS: Final = 16
#: Of the room for bodies, at most this part (one in so many) is of answers that can't be written.
_KEPT_PART: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


async def until_done(attempt: Callable[[], Awaitable[T]]) -> T:
    """What it comes to, however often it has to be tried: giving up would leave requests that
    nobody looks at any more."""
    while True:
        try:
            return await attempt()
        except PenstockError as error:
            _log.warning("asynchronous requests: %s: %s", error.code, error.message)
        except Exception:
            _log.exception("the record of asynchronous requests could not be used")
        await asyncio.sleep(AGAIN_S)


class RequestWork:
    """Of one server."""

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
        """`bytes_max`: of bodies in memory at once."""
        self.room = BytesRoom(bytes_max)
        self._kept_bytes = 0
        self._database = database
        self._dispatcher = dispatcher
        self._objects = objects
        self._clock = clock
        self._region = region
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-async")

    def close(self) -> None:
        """What is being written is written; nothing else is begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def insist(self, method: Callable[..., T], *args: Any) -> T:
        """What the database has, however often it has to be asked."""
        return await until_done(lambda: self._database.call(method, *args))

    async def request(self, number: int) -> AsyncRequest | None:
        """As it is on record; None: it no longer is."""
        return await self.insist(rows.request, number)

    async def check_writable(self, uri: str) -> None:
        """Raises PenstockError: `output-unwritable`, `output-unreachable`."""
        await self._in_thread(self._objects.check_writable, uri)

    async def computed(
        self, request: AsyncRequest, number: int, timeout_s: float, *, suspect: bool = False
    ) -> Reply:
        """The answer of a copy. Raises PenstockError. A `suspect` is computed alone."""
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
        """What the model is told of the body, and the body."""
        if not request.input_uri:
            return request.meta, await self.insist(rows.body, number)
        body, content_type = await self._in_thread(
            self._objects.read, request.input_uri, bytes_max=size
        )
        if not content_type or request.content_type:
            return request.meta, body
        # The Python SDK says what an input is where it uploads it, and not again.
        meta = decode_request_meta(request.meta)._replace(content_type=content_type)
        return encode_request_meta(meta), body

    async def written(
        self, request: AsyncRequest, number: int, reply: Reply
    ) -> Notification | None:
        """Writes an output. Its notification, if anybody is told. Raises PenstockError."""
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
        """Whether an answer that can't be written may stay in memory; `let_go` of it then. Together
        they take a part of the room, so that one full disk leaves the rest to others."""
        size = len(reply.body)
        if self._kept_bytes + size > self.room.bytes_max // _KEPT_PART:
            return False
        self._kept_bytes += size
        self.room.add(size)
        return True

    def let_go(self, reply: Reply) -> None:
        """An answer that was kept no longer is."""
        self._kept_bytes -= len(reply.body)
        self.room.give(len(reply.body))

    async def failure_written(
        self, request: AsyncRequest, number: int, reason: str, error: PenstockError
    ) -> None:
        """Writes the object of a failure, if it is to have one. Raises PenstockError."""
        if request.failure_uri:
            body = outcome.failure_body(reason, error, request)
            await self._write(request.failure_uri, body, number, "application/json")

    def failure_told(
        self, request: AsyncRequest, number: int, reason: str, error: PenstockError
    ) -> Notification | None:
        """The notification of a failure, if anybody is told."""
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
