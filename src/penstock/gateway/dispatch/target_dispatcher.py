"""The life of a request, whatever its targets are: copies of models, or whole regions.

1. `invoke`: a target is chosen and a slot there reserved; or it is held (`WAITING`), or refused.
2. Sent over the link to its target (`SENT`); `STREAMING` once the client has a part of the answer.
3. Given back unanswered: routed again within its deadline, held, or given up.
4. Answered: the responder is called once with the outcome (`ANSWERED`).
5. `written`: the last byte has left. Until then it is in flight.

`cancel` ends it from any of these states. The body is kept until the answer, for step 3.

A responder must not raise. If one does, only its own client loses the answer: that client gets an
error or is disconnected, and the request is over (`_responder_failed`).

Subclasses say which targets there are, which of them gets a request, and what follows if it gives
the request back: `dispatcher.py` for copies, `orchestrator/dispatcher.py` for regions. The
decisions are in `core/`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.clock import Clock
from penstock.config import LimitConfig
from penstock.core.routing import Routed
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.deadlines import Deadlines, DrainWatch
from penstock.gateway.dispatch.invocation import (
    ANSWERED,
    DONE,
    SENT,
    STREAMING,
    WAITING,
    Invocation,
    Link,
)
from penstock.gateway.dispatch.recording import RequestRing, record_failure
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import Timers

log = logging.getLogger(__name__)

STATUS_CANCELLED = 499


class TargetDispatcher(ABC):
    """The requests of one process, from `invoke` to their last byte.

    A target (`Invocation.entry`) has `in_flight`, the number of its requests, and a `router`.
    """

    #: Lower-case names of the headers that it reads from requests of any door.
    interest: tuple[bytes, ...] = ()

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        limits: LimitConfig,
        ids: RequestIds,
        ring: RequestRing,
        links: Mapping[str, Link],
    ) -> None:
        """
        Args:
            ring: gets each finished request.
            links: by the name of the target's instance or region.
        """
        self.ids = ids
        self.clock = clock
        self.limits = limits
        self.ring = ring
        self._monotonic = clock.monotonic
        self._timers = timers
        self._timeout_s = limits.request_timeout_s
        self._stream_timeout_s = max(limits.request_timeout_s, limits.stream_timeout_s)
        self._links = links
        self._deadlines = Deadlines(clock, timers, self._expire, limit_s=limits.request_timeout_s)
        self._live = self._deadlines.live
        self._bodies_bytes = 0
        self._stopping = False
        self._drains = DrainWatch(clock, timers)

    @property
    def in_flight(self) -> int:
        """Requests that were taken and whose last byte has not left."""
        return len(self._live)

    @property
    def accepting(self) -> bool:
        """False once it drains: new requests are refused."""
        return not self._stopping

    @abstractmethod
    def invoke(self, invocation: Invocation) -> None:
        """Takes a request; its responder is called exactly once, perhaps before this returns."""

    @abstractmethod
    def _send(self, invocation: Invocation, route: Routed, deadline: float, now: float) -> None:
        """Sends it to the target where it has a slot."""

    @abstractmethod
    def _leave_queue(self, invocation: Invocation) -> None:
        """A request that waits (`WAITING`) waits no longer."""

    @abstractmethod
    def _give_slot_back(self, invocation: Invocation, outcome: str = "") -> None:
        """Frees its slot if it has one. `outcome`: how the attempt ended, for `explain`."""

    @abstractmethod
    def _expire(self, invocation: Invocation) -> None:
        """Its deadline has passed without an answer."""

    # Ends

    def cancel(self, invocation: Invocation) -> None:
        """The client has gone. Allowed in every state."""
        state = invocation.state
        if state == ANSWERED:
            self.written(invocation)
        elif state in (SENT, STREAMING, WAITING):
            self._take_from_target(invocation)
            self._give_slot_back(invocation, "client-gone")
            recorder = invocation.recorder
            if recorder is not None:
                recorder.cancelled(invocation.door)
                if invocation.stream is not None:
                    invocation.stream.record(recorder, invocation.received, failed=False)
                invocation.recorder = None
            invocation.state = ANSWERED
            self.written(invocation, STATUS_CANCELLED)

    def _end(self, invocation: Invocation, error: PenstockError, outcome: str) -> None:
        """Ends a request that is not answered, wherever it is."""
        self._take_from_target(invocation)
        self._give_slot_back(invocation, outcome)
        self._fail(invocation, error)

    def _take_from_target(self, invocation: Invocation) -> None:
        if invocation.state == WAITING:
            self._leave_queue(invocation)
        elif invocation.state in (SENT, STREAMING):
            invocation.link.cancel(invocation)

    def written(self, invocation: Invocation, status: int = 200) -> None:
        """The last byte of the answer has left: the request is no longer in flight. Idempotent."""
        if invocation.state != ANSWERED:
            return
        invocation.state = DONE
        endpoint = invocation.entry
        copy = invocation.copy
        if copy is not None:
            router = endpoint.router
            if router.learns and invocation.reply is not None and invocation.error is None:
                router.answered(copy, now=self._monotonic())
            router.release(copy)
            if copy.draining and not copy.outstanding:
                self._drains.released(copy)
        try:
            error = invocation.error
            if error is not None:
                status = error.status
            total_s = self._monotonic() - invocation.received
            self.ring.record(invocation, status, total_s)
            recorder = invocation.recorder
            if recorder is not None:
                reply = invocation.reply
                if reply is not None and error is None:
                    recorder.finished(
                        status,
                        total_s,
                        reply.queue_us * 1e-6,
                        reply.run_us * 1e-6,
                        reply.batch_rows,
                        invocation.door,
                        0,
                        reply.lane_us * 1e-6,
                    )
                else:
                    record_failure(invocation, status, total_s)
                stream = invocation.stream
                if stream is not None:
                    stream.record(recorder, invocation.received, failed=error is not None)
        except Exception:  # a bad value from an instance or a model must not cost a slot
            log.exception("counting request %s failed", self.ids.text(invocation.number))
        del self._live[invocation.number]
        if endpoint is not None:
            endpoint.in_flight -= 1
            self._bodies_bytes -= invocation.body_bytes
        if self._drains.waits and not self._live:
            self._drains.look()

    def _fail(self, invocation: Invocation, error: PenstockError) -> None:
        invocation.state = ANSWERED
        invocation.error = error
        try:
            invocation.responder.on_error(invocation, error)
        except Exception as raised:
            self._responder_failed(invocation, raised)

    def _responder_failed(self, invocation: Invocation, raised: Exception) -> None:
        """The responder raised when it got the outcome: ends the request all the same.

        The front door may have sent half an answer, or none. If its client can still get an error,
        it gets one; else it is disconnected. The slot is freed at once.
        """
        error = raised if isinstance(raised, PenstockError) else refusals.responder_failed()
        if error is not raised:
            number = self.ids.text(invocation.number)
            log.error("the answer to request %s failed", number, exc_info=raised)
        if invocation.state == DONE:
            return
        self._take_from_target(invocation)
        self._give_slot_back(invocation, error.code)
        invocation.state = ANSWERED
        told = False
        if not invocation.finished:
            invocation.error = error
            try:
                invocation.responder.on_error(invocation, error)
                told = True
            except Exception:
                log.exception("telling its client of the error failed")
        if not told:
            invocation.error = invocation.error or error
            invocation.abort()
        self.written(invocation)

    # Reports of links

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        stream = invocation.stream
        if invocation.state != STREAMING:
            invocation.state = STREAMING
            if stream is None:
                stream = invocation.stream = StreamObserved()
            stream.first_at = self._monotonic()
            self._stream_begins(invocation, stream, meta)
        if stream is not None:
            stream.chunks += 1
            if stream.captured is not None:
                stream.captured.add(chunk)
            if stream.compared is not None:
                stream.compared.add(chunk)
        if invocation.copy is not None:
            invocation.copy.heard()
        try:
            invocation.responder.on_chunk(invocation, chunk, meta)
        except Exception as raised:
            self._responder_failed(invocation, raised)

    def _stream_begins(  # noqa: B027 - regions capture the calls of their endpoints themselves
        self, invocation: Invocation, stream: StreamObserved, meta: bytes | None
    ) -> None:
        """The first part of a streamed answer is here; `meta` came with it."""

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests from now on and waits for those in flight; False after
        `timeout_s`."""
        self._stopping = True
        return await self._drains.wait(lambda: not self._live, timeout_s)
