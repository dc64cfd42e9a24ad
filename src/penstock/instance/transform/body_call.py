"""One request body to a copy, and its whole answer: streamed parts are put together."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

import orjson

from penstock.errors import ModelError, PenstockError, from_dict
from penstock.instance.copy import Copy
from penstock.instance.request import ReplySink, Request
from penstock.runtimes.base import Returned
from penstock.wire import frames

_numbers: Final = itertools.count(1)

#: Between two looks whether a body that waits in the queue has begun.
LOOK_S: Final = 0.25

Outcome = bytes | PenstockError | Returned


class BodyCall(ReplySink):
    """The sink of one request."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._decoder = frames.FrameDecoder()
        self._streamed: list[bytes] = []

    # ReplySink

    def forget(self, ident: int) -> None:
        return

    def send(self, frame: bytes) -> None:
        for read in self._decoder.feed(frame):
            self._take(read)

    def _take(self, read: frames.Frame) -> None:
        if read.kind == frames.CHUNK:
            self._streamed.append(read.payload[read.meta_bytes :])
            return
        if self._future.done():
            return
        if read.kind == frames.RETURNED:
            self._future.set_result(Returned(read.payload.decode()))
            return
        reply = frames.decode_reply(read.payload, read.meta_bytes)
        if read.kind == frames.ERROR:
            self._future.set_result(from_dict(orjson.loads(reply.body)))
        else:
            self._future.set_result(b"".join((*self._streamed, reply.body)))

    async def wait(self, seconds: float) -> bool:
        """Whether the outcome is there, after at most that time."""
        await asyncio.wait((self._future,), timeout=seconds)
        return self._future.done()

    def outcome(self) -> Outcome:
        return self._future.result()


async def ask(copy: Copy, meta: bytes, body: bytes, *, alone: bool, timeout_s: float) -> Outcome:
    """The answer; an error, also for one that did not come in time; or why it was given back.

    `timeout_s`: from when the model begins with it. Whoever is cancelled here cancels the request.
    """
    call = BodyCall()
    now = copy.clock.monotonic()
    request = Request(call, next(_numbers), meta, body, now, None, 0, alone)
    copy.accept(request, now)
    copy.turn(now)
    try:
        return await _in_time(copy, request, call, timeout_s)
    finally:
        copy.cancel(request)


async def _in_time(copy: Copy, request: Request, call: BodyCall, timeout_s: float) -> Outcome:
    left_s = timeout_s
    looked = copy.clock.monotonic()
    while left_s > 0:
        if await call.wait(min(left_s, LOOK_S)):
            return call.outcome()
        now = copy.clock.monotonic()
        if copy.has_begun(request):
            left_s -= now - looked
        looked = now
    return ModelError(
        "invocation-timeout",
        f"the model did not answer within {timeout_s:g} s",
        hint="Raise InvocationsTimeoutInSeconds, or send less at once: MaxPayloadInMB, "
        "BatchStrategy SingleRecord.",
    )
