"""One copy of a model: requests in, reply frames out. Its `Work` computes them.

    Copy         accepts and refuses requests, counts unanswered ones, sends final frames, handles
                 lanes whose worker died, drains, and reports all that
    Work         behind it: `engines.batches` (requests share runs of the model), or
                 `engines.sequences` (each has a slot of its own; pipelines use it too)

It decides nothing: the batcher says when a batch leaves, the runtime when a worker comes back. It
guarantees that a request is answered exactly once: with a REPLY, an ERROR, RETURNED, or CHUNK
frames and their END or ERROR, unless it was cancelled. Answers that have begun to stream are never
given back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.clock import Clock
from penstock.core.batching.batcher import Action, Batcher, BatchSpec, RunBatch
from penstock.core.batching.response_order import ResponseOrder
from penstock.core.request.retry import REBALANCED
from penstock.core.routing.rebalance import evenly
from penstock.errors import PenstockError
from penstock.instance import replies
from penstock.instance.batcher_driver import BatcherDriver, CallAt
from penstock.instance.rate_limits import LaneLimits
from penstock.instance.request import Item, ReplySink, Request
from penstock.runtimes.base import Returned
from penstock.wire import frames

#: Larger bodies are read and written on a helper thread: parsing them would block the loop.
LOOP_BYTES_MAX = 65_536

#: (work, done): does the work on another thread; `done` gets its result or exception, on the loop.
Elsewhere = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class Work:
    """The part of a copy that computes its requests. `attach` is called first, and again when the
    serving copy replaces a copy for warm-up."""

    #: True: all lanes use one process, which may die of the request on another lane.
    shares_worker: bool = False
    #: True: all lanes are lost and come back with worker 0.
    one_worker: bool = False
    #: The largest body that is read on the loop.
    loop_bytes_max: int = LOOP_BYTES_MAX
    #: (meta, body) -> the value for `queue`; raises PenstockError. None: bodies are queued unread.
    decode: Callable[[bytes, bytes], Any] | None = None

    #: True: no other copy could answer a request that waits here.
    keeps_requests: bool = False

    def attach(self, copy: Copy) -> None:
        self._copy = copy

    def driver(self, spec: BatchSpec, **driving: Any) -> BatcherDriver[Any]:
        """The driver of a copy's queue; `driving`: arguments of `BatcherDriver`."""
        return BatcherDriver(Batcher(spec), **driving)

    def refusal(self, request: Request, reason: str) -> PenstockError:
        """The error for a request that the queue refused or that expired in it."""
        return replies.not_now(reason)

    def queue(self, request: Request, outcome: Any, now: float) -> None:
        """Gives the result of `decode` to the batcher's driver, or fails the request."""
        raise NotImplementedError

    def run(self, action: RunBatch, items: list[Any]) -> None:
        """Computes a batch; its lane is freed later, on the loop, by `Copy.lane_freed`."""
        raise NotImplementedError

    def cancelled(self, request: Request) -> None:
        """The request was cancelled: its computation may be ended."""

    def paced(self, request: Request, *, waits: bool) -> None:
        """Its client reads slowly: more of its answer is to wait, or need not any more."""

    def unbegun(self) -> list[Request]:
        """Requests that left the queue and are not computed yet, oldest first; `cancelled` takes
        them back."""
        return []

    def lane_lost(self, lane: int) -> None:
        """The worker of a lane has ended; what it computed is reported by the runtime."""

    def lane_ready(self, lane: int) -> None:
        """The lane has a worker again."""

    def lost(self) -> None:
        """No worker is left. Running requests are answered now, or as the runtime reports each."""

    def close(self) -> None:
        """Running requests are given back, cancelled, or left to finish without an answer."""

    def status(self) -> dict[str, Any]:
        """For the instance's status: values for gauges beside the copy's own."""
        return {}

    def explain(self) -> dict[str, Any]:
        return self.status()


class Copy:
    """`on_state(event, error)` reports `copy-lost`, `copy-ready` and `copy-failed` to the server.
    `on_idle()` is called whenever all accepted requests are answered, `on_answer(frame)` with each
    final frame."""

    def __init__(
        self,
        number: int,
        work: Work,
        spec: BatchSpec,
        *,
        clock: Clock,
        call_at: CallAt,
        elsewhere: Elsewhere | None = None,
        on_state: Callable[[str, PenstockError | None], None] = lambda event, error: None,
        on_idle: Callable[[], None] | None = None,
        on_answer: Callable[[bytes], None] | None = None,
        observe: Callable[[list[Action]], None] | None = None,
        limits: LaneLimits | None = None,
    ) -> None:
        self.number = number
        self.state = "ready"  #: ready | lost | failed | draining | closed
        self.batches = 0  #: runs of the model, or requests that got a slot
        self.requests = 0  #: requests answered without an error
        self.run_us = 0  #: total time that its lanes were busy
        self.unanswered = 0  #: accepted requests without an answer
        self.spec = spec
        self.clock = clock
        self.elsewhere = elsewhere
        self._work = work
        self._decode = work.decode
        #: The suspect that runs in no batch with other suspects; see `accept`
        self._suspect: Request | None = None
        self._on_state = on_state
        self._lanes_lost: set[int] = set()
        self._lanes_held: list[int] = []  #: lanes freed while their worker was lost
        self._on_idle = on_idle
        self._on_answer = on_answer
        #: None: answers leave as soon as they are there
        self._order: ResponseOrder[tuple[ReplySink, bytes]] | None = (
            ResponseOrder() if spec.preserves_order else None
        )
        self._limits = limits
        run = work.run if limits is None else partial(limits.run, work.run)
        self.driver = work.driver(
            spec, clock=clock, call_at=call_at, run=run, drop=self._drop, observe=observe
        )
        #: Call it after each read of a socket: requests that came together may leave as one batch.
        self.turn: Callable[[float], None] = self.driver.turn
        work.attach(self)

    # Requests

    def accept(self, request: Request, now: float) -> None:
        """Takes a request. The connection calls `turn` after all of one socket read."""
        if self.state in ("lost", "failed", "closed"):
            self.turn_back(request, f"copy-{self.state}")
            return
        work = self._work
        if request.alone and work.shares_worker:
            # Only one suspect at a time, until its answer has begun: so a death has a known cause.
            suspect = self._suspect
            if suspect is not None and suspect.alone and not suspect.answered:
                self.turn_back(request, "another-is-tried-alone")
                return
            self._suspect = request
        self.unanswered += 1
        if self._order is not None:
            self._order.arrived(request)
        if request.by is not None:
            request.by.taken(request)
        decode = self._decode
        if decode is None:
            request.number = self.driver.add(
                request, priority=request.priority, deadline=request.deadline,
                alone=request.alone, now=now,
            )  # fmt: skip
        elif len(request.body) > work.loop_bytes_max and self.elsewhere is not None:
            self.elsewhere(
                lambda: decode(request.meta, request.body),
                lambda outcome: self._decoded_elsewhere(request, outcome),
            )
        else:
            try:
                outcome = decode(request.meta, request.body)
            except Exception as error:  # a codec's error, or a bug that must not end the loop
                self.fail(request, replies.as_error(error, "reading the request"))
                return
            request.body = b""  # from here on only the decoded form is needed
            work.queue(request, outcome, now)

    def accept_read(self, request: Request, outcome: Any, now: float) -> None:
        """Takes a request with tensors of this process instead of a body, in the form that
        `Work.queue` takes. The caller calls `turn` afterwards."""
        if self.state in ("lost", "failed", "closed"):
            self.turn_back(request, f"copy-{self.state}")
            return
        self.unanswered += 1
        if self._order is not None:
            self._order.arrived(request)
        self._work.queue(request, outcome, now)

    def _decoded_elsewhere(self, request: Request, outcome: Any) -> None:
        if request.answered:
            return
        if isinstance(outcome, BaseException):
            self.fail(request, replies.as_error(outcome, "reading the request"))
            return
        request.body = b""
        now = self.clock.monotonic()
        self._work.queue(request, outcome, now)
        self.driver.turn(now)

    def turn_back(self, request: Request, reason: str) -> None:
        """Refuses a request: another copy may take it."""
        request.refuse(replies.returned_frame(request.ident, reason))

    def cancel(self, request: Request) -> None:
        """The request was cancelled: it leaves the queue; if it runs, it is ended or finishes
        without an answer."""
        if not request.answered:
            self.answer(request, None)
            self._work.cancelled(request)

    def pace(self, request: Request, *, waits: bool) -> None:
        if not request.answered:
            self._work.paced(request, waits=waits)

    def _drop(self, item: Item, reason: str) -> None:
        request: Any = item.whole or item
        if request.answered:
            return
        if reason == "draining":
            self.give_back(request, reason)
        else:
            self.fail(request, self._work.refusal(request, reason))

    # The end of an answer

    def answer(self, request: Request, frame: bytes | None) -> None:
        """Sends the final frame of a request; None: the request was cancelled. Nothing of it is
        queued afterwards."""
        request.answered = True
        if request.by is not None:
            request.by.answered(request)
        sink = request.sink
        sink.forget(request.ident)
        if request.parts is not None:
            for part in request.parts:
                self.driver.cancel(part.number)
        elif request.number:
            self.driver.cancel(request.number)
        if frame is not None:
            if self._on_answer is not None:
                self._on_answer(frame)
            if request.traced is not None:
                frame = replies.with_spans(frame, request.traced)
            if self._order is None:
                sink.send(frame)
        if self._order is not None:
            own = (sink, frame) if frame is not None else None
            for held_by, held in self._order.ended(request, own):
                held_by.send(held)
        self.unanswered -= 1
        if not self.unanswered and self._on_idle is not None:
            self._on_idle()

    def fail(
        self, request: Request, error: PenstockError, *, queue_us: int = 0, run_us: int = 0
    ) -> None:
        frame = replies.error_frame(request.ident, error, queue_us=queue_us, run_us=run_us)
        self.answer(request, frame)

    def give_back(self, request: Request, reason: str) -> None:
        """Gives the request back: the gateway may send it to another copy."""
        self.answer(request, replies.returned_frame(request.ident, reason))

    # Lanes, and the workers behind them (see runtimes.base.LaneListener)

    def lane_freed(self, lane: int, *, timed: bool = True) -> None:
        """The batch on `lane` has ended; `timed` as in the batcher."""
        if lane in self._lanes_lost:
            self._lanes_held.append(lane)
        else:
            self.driver.lane_freed(lane, timed=timed)
        if self._limits is not None:
            self._limits.freed(lane)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._lanes_lost.update(self._lanes_of(lane))
        self._work.lane_lost(lane)
        if len(self._lanes_lost) < self.spec.lanes:
            return
        was_ready = self.state == "ready"
        if was_ready:
            self.state = "lost"
        self._work.lost()
        self._give_back_queue("copy-lost")
        if was_ready:
            self._on_state("copy-lost", error)

    def lane_ready(self, lane: int) -> None:
        lanes = self._lanes_of(lane)
        self._lanes_lost.difference_update(lanes)
        if self.state == "lost":
            self.state = "ready"
            self._on_state("copy-ready", None)
        freed = [each for each in self._lanes_held if each in lanes]
        self._lanes_held = [each for each in self._lanes_held if each not in lanes]
        for each in freed:
            # Most often a new worker has started: there is no run time to learn from.
            self.driver.lane_freed(each, timed=False)
        self._work.lane_ready(lane)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        """One lane that can't start means that the model can't: the other lanes will follow."""
        if self.state in ("failed", "closed"):
            return
        self.state = "failed"
        self._give_back_queue("copy-failed")
        self._on_state("copy-failed", error)

    def _lanes_of(self, worker: int) -> Sequence[int]:
        return range(self.spec.lanes) if self._work.one_worker else (worker,)

    def _give_back_queue(self, reason: str) -> None:
        for item in self.driver.give_back():
            request = item.whole or item
            if not request.answered:
                self.give_back(request, reason)

    def give_back_waiting(self, count: int, sink: ReplySink) -> int:
        """Gives back at most `count` requests of one connection that have not begun, evenly chosen
        over their order of arrival; returns how many.

        Requests of a session stay: no other copy could answer them. So do suspects that are
        computed alone, whose case is decided here, and requests for an adapter, which name another
        copy.
        """
        if self._work.keeps_requests:
            return 0
        queued = Counter(item.whole or item for item in self.driver.waiting())
        waiting = [
            request
            for request in (*self._work.unbegun(), *queued)
            if request.sink is sink
            and not request.answered
            and not request.alone
            and request.by is None
            and (request.parts is None or queued[request] == len(request.parts))
            and frames.decode_request_meta(request.meta).session_id is None
        ]
        chosen = evenly(waiting, count)
        for request in chosen:
            self.give_back(request, REBALANCED)
        # In a second loop, because a slot that is freed takes the next request in the queue
        for request in chosen:
            self._work.cancelled(request)
        return len(chosen)

    def has_begun(self, request: Request) -> bool:
        """Whether it left the queue, as a whole or in part."""
        if request.parts is not None:
            queued = sum((item.whole or item) is request for item in self.driver.waiting())
            return queued < len(request.parts)
        return request not in self.driver.waiting() and request not in self._work.unbegun()

    # The end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Accepts no more requests; calls `on_idle` when all accepted ones are answered (maybe at
        once)."""
        self.state = "draining"
        self._on_idle = on_idle
        self.driver.drain()
        if not self.unanswered:
            on_idle()

    def close(self) -> None:
        """Gives back all queued requests; the work ends the running ones."""
        self.state = "closed"
        self._on_idle = None
        self._give_back_queue("draining")
        for item in self._limits.close() if self._limits is not None else ():
            request = item.whole or item
            if not request.answered:
                self.give_back(request, "draining")
        self._work.close()
        self.driver.close()

    # Reports

    def status(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "queue_rows": self.driver.queue_rows,
            "running": self.driver.running,
            "batches": self.batches,
            "requests": self.requests,
            "unanswered": self.unanswered,
            **self._work.status(),
        }

    def explain(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "batches": self.batches,
            "requests": self.requests,
            "unanswered": self.unanswered,
            "lanes_lost": sorted(self._lanes_lost),
            **self._work.explain(),
            "batcher": self.driver.snapshot(),
        }


Outcome = bytes | PenstockError | Returned


class CopyCall(ReplySink):
    """The sink of a request to a copy from its own process: `outcome` gets what becomes of it. The
    parts of a streamed answer are joined.

    It does not hold its request, which holds it: a body of megabytes would stay in memory until the
    collector of cycles comes by.
    """

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._decoder = frames.FrameDecoder()
        self._streamed: list[bytes] = []

    def begin(
        self, copy: Copy, ident: int, meta: bytes, body: bytes, *, alone: bool = False
    ) -> Request:
        now = copy.clock.monotonic()
        request = Request(self, ident, meta, body, now, None, 0, alone)
        copy.accept(request, now)
        copy.turn(now)
        return request

    def forget(self, ident: int) -> None:
        """Does nothing: no frame can cancel it."""

    def send(self, frame: bytes) -> None:
        for read in self._decoder.feed(frame):
            if read.kind == frames.CHUNK:
                self._streamed.append(read.payload[read.meta_bytes :])
            elif not self.outcome.done():
                outcome = replies.outcome_of(read)
                if isinstance(outcome, bytes):
                    outcome = b"".join((*self._streamed, outcome))
                self.outcome.set_result(outcome)
