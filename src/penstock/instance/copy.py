"""One loaded model: requests in, batches through its engine, reply frames out.

Decides nothing: when a batch leaves is the batcher's, when a worker comes back is the runtime's.
Keeps the promise that a request is answered exactly once: with a REPLY, an ERROR, or RETURNED,
unless it was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.core.batching import Action, Batcher, BatchSpec, RunBatch
from penstock.core.retry import WORKER_DIED_IN_COMPANY, blamed
from penstock.errors import ModelError, PenstockError
from penstock.instance import replies
from penstock.instance.batcher_driver import BatcherDriver, CallAt
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.request import Item, Request
from penstock.runtimes.base import PayloadReply, Returned
from penstock.wire import frames

#: Larger bodies are read and written on a helper thread: parsing them would stall the loop.
LOOP_BYTES_MAX = 65_536

_REASONS = frames.BATCH_REASON_CODES


class _Run:
    """A batch on a lane."""

    __slots__ = ("action", "items", "started")

    def __init__(self, action: RunBatch, items: list[Any], started: float) -> None:
        self.action = action
        self.items = items
        self.started = started


class Copy:
    """`engine` without `decode` passes bodies through. `on_state(event, error)` tells the server of
    `copy-lost`, `copy-ready` and `copy-failed`."""

    def __init__(
        self,
        number: int,
        engine: Any,
        spec: BatchSpec,
        *,
        passes_bodies: bool,
        clock: Clock,
        call_at: CallAt,
        helper: LaneThreads | None = None,
        on_state: Callable[[str, PenstockError | None], None] = lambda event, error: None,
        observe: Callable[[list[Action]], None] | None = None,
    ) -> None:
        self.number = number
        self.state = "ready"  #: ready | lost | failed | draining | closed
        self.batches = 0
        self.requests = 0
        self._engine = engine
        self._spec = spec
        self._passes_bodies = passes_bodies
        self._shares_worker: bool = getattr(engine, "shares_worker", False)
        self._suspect: Request | None = None  #: computed alone among its like, see `accept`
        self._loop_bytes_max: int = getattr(engine, "loop_bytes_max", LOOP_BYTES_MAX)
        self._clock = clock
        self._call_at = call_at
        self._helper = helper
        self._on_state = on_state
        self._lanes_lost: set[int] = set()
        self._runs: dict[int, _Run] = {}  #: what each busy lane runs
        self._runs_ahead: dict[int, _Run] = {}  #: and what it holds ahead
        self._lanes_held: set[int] = set()  #: freed while their worker was lost
        self._unanswered = 0
        self._on_idle: Callable[[], None] | None = None
        self.driver: BatcherDriver[Any] = BatcherDriver(
            Batcher(spec), clock=clock, call_at=call_at, run=self._run, drop=self._drop,
            observe=observe,
        )  # fmt: skip

    @property
    def unanswered(self) -> int:
        """Requests taken and not yet answered."""
        return self._unanswered

    # requests

    def accept(self, request: Request, now: float) -> None:
        """Takes a request. The server calls `driver.turn` after all of one socket read."""
        if self.state in ("lost", "failed", "closed"):
            self._return(request, f"copy-{self.state}")
            return
        if request.alone and self._shares_worker:
            if self._suspect is not None and not self._suspect.answered:
                self._return(request, "another-is-tried-alone")
                return
            self._suspect = request
        self._unanswered += 1
        if self._passes_bodies:
            request.number = self.driver.add(
                request, priority=request.priority, deadline=request.deadline,
                alone=request.alone, now=now,
            )  # fmt: skip
        elif len(request.body) > self._loop_bytes_max and self._helper is not None:
            self._helper.submit(
                0,
                lambda: self._engine.decode(request.meta, request.body),
                lambda outcome: self._decoded_elsewhere(request, outcome),
            )
        else:
            try:
                outcome = self._engine.decode(request.meta, request.body)
            except Exception as error:  # a codec's ModelError, or a bug that must not end the loop
                self._fail(request, replies.as_error(error, "reading the request"))
                return
            self._queue(request, outcome, now)

    def _decoded_elsewhere(self, request: Request, outcome: Any) -> None:
        if request.answered:
            return
        if isinstance(outcome, BaseException):
            self._fail(request, replies.as_error(outcome, "reading the request"))
            return
        now = self._clock.monotonic()
        self._queue(request, outcome, now)
        self.driver.turn(now)

    def _queue(self, request: Request, outcome: tuple[Any, Any, int], now: float) -> None:
        decoded, data, length = outcome
        request.body = b""  # the rows are all that is needed from here on
        request.decoded = decoded
        rows_max = self._spec.rows_max
        if decoded.rows <= rows_max:
            request.data = data
            request.rows = decoded.rows
            request.number = self.driver.add(
                request, rows=decoded.rows, length=length, priority=request.priority,
                deadline=request.deadline, alone=request.alone, now=now,
            )  # fmt: skip
            return
        if decoded.rows > self._spec.queue_rows_max:
            error = ModelError(
                "too-many-rows",
                f"the request has {decoded.rows} rows, {self._spec.queue_rows_max} at most",
                hint="Send it in several requests.",
                original_status=413,
            )
            self._fail(request, error)
            return
        if self.driver.queue_rows + decoded.rows > self._spec.queue_rows_max:
            self._fail(request, replies.not_now("queue-full"))
            return
        starts = range(0, decoded.rows, rows_max)
        stops = [min(start + rows_max, decoded.rows) for start in starts]
        request.parts = [
            Item(request, self._engine.cut(data, start, stop), stop - start)
            for start, stop in zip(starts, stops, strict=True)
        ]
        request.parts_left = len(request.parts)
        for part in request.parts:
            if request.answered:
                return
            part.number = self.driver.add(
                part, rows=part.rows, length=length, priority=request.priority,
                deadline=request.deadline, alone=request.alone, now=now,
            )  # fmt: skip

    def cancel(self, request: Request) -> None:
        """Nobody wants the answer: what is queued leaves, what runs finishes unseen."""
        if request.answered:
            return
        self._close(request)

    # the driver's callbacks

    def _run(self, action: RunBatch, items: list[Any]) -> None:
        self.batches += 1
        run = _Run(action, items, self._clock.monotonic())
        lane = action.lane
        if self._runs.setdefault(lane, run) is not run:
            self._runs_ahead[lane] = run
        self._engine.run(lane, items, action.bucket, lambda results: self._done(run, results))

    def _drop(self, item: Item, reason: str) -> None:
        request: Any = item.whole or item
        if request.answered:
            return
        if reason == "draining":
            self._close(request)
            request.sink.send(replies.returned_frame(request.ident, reason))
        else:
            self._fail(request, replies.not_now(reason))

    def _done(self, run: _Run, results: Any) -> None:
        now = self._clock.monotonic()
        lane = run.action.lane
        run_us = int((now - run.started) * 1e6)
        ahead = self._runs_ahead.pop(lane, None)
        if ahead is None:
            del self._runs[lane]
        else:
            self._runs[lane] = ahead
            ahead.started = now
        if results is None:
            results = [Returned(blamed(len(run.items) - 1))] * len(run.items)
        elif isinstance(results, BaseException):
            results = [results] * len(run.items)
        # The lane first: it runs the next batch while the answers of this one are written.
        if lane in self._lanes_lost:
            self._lanes_held.add(lane)
        else:
            self.driver.lane_freed(lane)
        for item, result in zip(run.items, results, strict=True):
            request = item.whole or item
            if request.answered:
                continue
            if type(result) is Returned:
                reason = result.reason
                if reason == WORKER_DIED_IN_COMPANY:
                    reason = blamed(1, alone=request.alone)
                self._close(request)
                request.sink.send(replies.returned_frame(request.ident, reason))
            elif isinstance(result, BaseException):
                self._fail(request, replies.as_error(result, "running the model"), run, run_us)
            elif type(result) is PayloadReply:
                self._answer_payload(request, result, run, run_us)
            elif item.whole is None:
                self._answer(request, result, run, run_us)
            else:
                item.result = result
                request.parts_left -= 1
                if not request.parts_left:
                    self._answer_joined(request, run, run_us)

    # answers

    def _answer_payload(
        self, request: Request, reply: PayloadReply, run: _Run, run_us: int
    ) -> None:
        if reply.error is not None:
            self._fail(request, reply.error, run, run_us)
            return
        try:
            meta = replies.reply_meta(reply.content_type, reply.custom_attributes)
        except frames.FrameError:
            error = ModelError("head-too-large", "the model's reply headers are too large")
            self._fail(request, error, run, run_us)
            return
        self._reply(request, meta, reply.body, run, run_us)

    def _answer_joined(self, request: Request, run: _Run, run_us: int) -> None:
        parts = request.parts or []
        try:
            joined = self._engine.join([part.result for part in parts])
        except Exception as error:  # outputs of parts that do not fit together
            self._fail(request, replies.as_error(error, "joining the answer"), run, run_us)
            return
        self._answer(request, joined, run, run_us)

    def _answer(self, request: Request, outputs: Any, run: _Run, run_us: int) -> None:
        decoded = request.decoded
        assert decoded is not None
        if self._helper is not None and _bytes_of(outputs) > LOOP_BYTES_MAX:
            self._helper.submit(
                0,
                lambda: decoded.encode(outputs),
                lambda written: self._encoded(request, written, run, run_us),
            )
            return
        try:
            written = decoded.encode(outputs)
        except Exception as error:  # a codec's ModelError, or a bug that must not end the loop
            self._fail(request, replies.as_error(error, "writing the answer"), run, run_us)
            return
        self._reply(request, written[1], written[0], run, run_us)

    def _encoded(self, request: Request, written: Any, run: _Run, run_us: int) -> None:
        if request.answered:
            return
        if isinstance(written, BaseException):
            self._fail(request, replies.as_error(written, "writing the answer"), run, run_us)
        else:
            self._reply(request, written[1], written[0], run, run_us)

    def _reply(self, request: Request, meta: bytes, body: bytes, run: _Run, run_us: int) -> None:
        action = run.action
        self.requests += 1
        self._close(request)
        request.sink.send(
            frames.HEAD.pack(14 + len(meta) + len(body), frames.REPLY, 0, len(meta), request.ident)
            + frames.REPLY_HEAD.pack(
                200,
                action.rows,
                action.lane,
                _REASONS.get(action.reason, 0),
                int((run.started - request.received) * 1e6),
                run_us,
            )
            + meta
            + body
        )

    def _fail(
        self, request: Request, error: PenstockError, run: _Run | None = None, run_us: int = 0
    ) -> None:
        queue_us = int((run.started - request.received) * 1e6) if run else 0
        self._close(request)
        request.sink.send(
            replies.error_frame(request.ident, error, queue_us=queue_us, run_us=run_us)
        )

    def _return(self, request: Request, reason: str) -> None:
        request.answered = True
        request.sink.forget(request.ident)
        request.sink.send(replies.returned_frame(request.ident, reason))

    def _close(self, request: Request) -> None:
        """No answer follows but the one the caller is about to send."""
        request.answered = True
        request.sink.forget(request.ident)
        if request.parts is not None:
            for part in request.parts:
                self.driver.cancel(part.number)
        elif request.number:
            self.driver.cancel(request.number)
        self._unanswered -= 1
        if not self._unanswered and self._on_idle is not None:
            self._on_idle()

    # lanes of payload runtimes (see runtimes.python.runtime.LaneListener)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._lanes_lost.add(lane)
        if len(self._lanes_lost) == self._spec.lanes and self.state == "ready":
            self.state = "lost"
            self._give_back("copy-lost")
            self._on_state("copy-lost", error)

    def lane_ready(self, lane: int) -> None:
        self._lanes_lost.discard(lane)
        if self.state == "lost":
            self.state = "ready"
            self._on_state("copy-ready", None)
        if lane in self._lanes_held:
            self._lanes_held.discard(lane)
            # Mostly the start of a new worker: no run time to learn from.
            self.driver.lane_freed(lane, timed=False)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        """One lane that cannot start is a model that cannot: the others will follow."""
        if self.state in ("failed", "closed"):
            return
        self.state = "failed"
        self._give_back("copy-failed")
        self._on_state("copy-failed", error)

    def _give_back(self, reason: str) -> None:
        for item in self.driver.give_back():
            request = item.whole or item
            if not request.answered:
                self._close(request)
                request.sink.send(replies.returned_frame(request.ident, reason))

    # the end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Takes no more; `on_idle` is called when everything taken is answered (maybe at once)."""
        self.state = "draining"
        self._on_idle = on_idle
        self.driver.drain()
        if not self._unanswered:
            on_idle()

    def close(self) -> None:
        """Whoever is still queued is given back."""
        self.state = "closed"
        self._on_idle = None
        self._give_back("draining")
        self.driver.close()

    def explain(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "batches": self.batches,
            "requests": self.requests,
            "unanswered": self._unanswered,
            "lanes_lost": sorted(self._lanes_lost),
            "batcher": self.driver.snapshot(),
        }


def _bytes_of(outputs: dict[str, Any]) -> int:
    return sum(array.nbytes for array in outputs.values())
