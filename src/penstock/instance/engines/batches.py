"""Requests that share runs of a model: rows into the queue, batches through an engine, answers out.

A request with more rows than a batch takes is cut into parts, and their results are joined again.
Tensors and texts are known only to the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from penstock.core.batching.batcher import RunBatch
from penstock.core.batching.caller_settings import (
    deadline_of,
    level_of,
    policy_of,
    queue_wait_of,
)
from penstock.core.blame.poison_requests import WORKER_DIED_IN_COMPANY, reason_of_death
from penstock.errors import ModelError, PenstockError
from penstock.instance import broken, replies
from penstock.instance.codecs.base import Decoded
from penstock.instance.copy import LOOP_BYTES_MAX, Work
from penstock.instance.engines.payload_stream import end_of_stream
from penstock.instance.request import Item, Request
from penstock.runtimes.base import NOT_BEGUN, PayloadReply, Returned
from penstock.wire import frames

_REASONS = frames.BATCH_REASON_CODES
_REPLY_BYTES = frames.REPLY_HEAD.size
_US_MAX = 0xFFFFFFFF


class Engine(Protocol):
    """Computes batches of tensors or texts; an engine of payloads has only `run`. `data` is the
    engine's own."""

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        """(decoded, data of all rows, length in tokens or 0). Raises ModelError."""

    def cut(self, data: Any, start: int, stop: int) -> Any:
        """The rows from `start` to before `stop`."""

    def join(self, results: list[Any]) -> Any:
        """Results of consecutive parts as one."""

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        """`done` is called on the loop, once: with a list that has a result, an exception or
        `Returned` per item; with None if the worker died with the whole batch; or with one
        exception for all items. A result is the argument of `Decoded.encode`, or a PayloadReply.

        If the engine has a method `run_here`, it is called instead for a batch that may run on the
        loop's thread. If it has a method `unwanted(lane)`, it is called when all requests of a
        batch were cancelled; a method `item_unwanted(request)`, for each that was.
        """


class BatchRun:
    """A batch on a lane."""

    __slots__ = ("action", "items", "started")

    def __init__(self, action: RunBatch, items: list[Any], started: float) -> None:
        self.action = action
        self.items = items
        self.started = started


class Batches(Work):
    """`engine`: an `Engine`. If it has no `decode`, bodies are passed on unread."""

    def __init__(self, engine: Any, priority_default: int = 0) -> None:
        """`priority_default`: level of a request that names none."""
        self._priority_default = priority_default
        self.decode = getattr(engine, "decode", None)
        self.shares_worker = getattr(engine, "shares_worker", False)
        self.loop_bytes_max = getattr(engine, "loop_bytes_max", LOOP_BYTES_MAX)
        self.engine = engine
        self._run_here = getattr(engine, "run_here", engine.run)
        self._unwanted = getattr(engine, "unwanted", None)
        self._item_unwanted = getattr(engine, "item_unwanted", None)
        self._runs: dict[int, BatchRun] = {}  #: lane -> the batch that it runs
        #: Lane -> the next batch, which it has in advance
        self._runs_ahead: dict[int, BatchRun] = {}
        #: What was being computed when the process was lost, if it was
        self._lost_with: list[BatchRun] = []

    def queue(self, request: Request, outcome: tuple[Any, Any, int], now: float) -> None:
        decoded, data, length = outcome
        request.decoded = decoded
        copy = self._copy
        if not decoded.rows:
            self._answer_at_once(request, decoded)
            return
        rows_max = copy.spec.rows_max
        priority, deadline, wait = self._asked(request, decoded, now)
        if decoded.rows <= rows_max:
            request.data = data
            request.rows = decoded.rows
            request.number = copy.driver.add(
                request, rows=decoded.rows, length=length, priority=priority,
                deadline=deadline, alone=request.alone, now=now, **wait,
            )  # fmt: skip
            return
        queue_rows_max = copy.spec.queue_rows_max
        if decoded.rows > queue_rows_max:
            error = ModelError(
                "too-many-rows",
                f"the request has {decoded.rows} rows, {queue_rows_max} at most",
                hint="Send it in several requests.",
                original_status=413,
            )
            copy.fail(request, error)
            return
        if copy.driver.queue_rows + decoded.rows > queue_rows_max:
            copy.fail(request, replies.not_now("queue-full"))
            return
        starts = range(0, decoded.rows, rows_max)
        stops = [min(start + rows_max, decoded.rows) for start in starts]
        request.parts = [
            Item(request, self.engine.cut(data, start, stop), stop - start)
            for start, stop in zip(starts, stops, strict=True)
        ]
        request.parts_left = len(request.parts)
        request.lane_us = 0
        for part in request.parts:
            if request.answered:
                return
            part.number = copy.driver.add(
                part, rows=part.rows, length=length, priority=priority,
                deadline=deadline, alone=request.alone, now=now, **wait,
            )  # fmt: skip

    def _answer_at_once(self, request: Request, decoded: Decoded) -> None:
        """A request that needs no run of the model."""
        body, meta = decoded.encode({})
        self._copy.requests += 1
        self._copy.answer(request, frames.encode_reply(request.ident, meta=meta, body=body))

    def _asked(
        self, request: Request, decoded: Decoded, now: float
    ) -> tuple[int, float | None, dict[str, float]]:
        """(level, deadline, more for the queue), with what its caller says of them."""
        metadata, spec = decoded.metadata, self._copy.spec
        level = max(request.priority, self._priority_default)
        if metadata is None or not (metadata.priority or metadata.timeout_us):
            return level, request.deadline, {}
        level = level_of(metadata.priority, otherwise=level, levels=spec.priorities)
        policy = policy_of(spec, level)
        wait_s = queue_wait_of(metadata.timeout_us / 1e6, policy)
        if wait_s is None:
            return level, request.deadline, {}
        if policy.delays:
            return level, request.deadline, {"wait_s_max": wait_s}
        return level, deadline_of(request.deadline, wait_s, now=now), {}

    def status(self) -> dict[str, Any]:
        status: Callable[[], dict[str, Any]] = getattr(self.engine, "status", dict)
        return status()

    def explain(self) -> dict[str, Any]:
        explain: Callable[[], dict[str, Any]] = getattr(self.engine, "explain", dict)
        return {**self.status(), **explain()}

    def cancelled(self, request: Request) -> None:
        """A batch whose requests were all cancelled may end sooner, if its engine can do that."""
        if self._item_unwanted is not None:
            self._item_unwanted(request)
        if self._unwanted is None:
            return
        for lane, run in self._runs.items():
            if all((item.whole or item).answered for item in run.items):
                self._unwanted(lane)

    def run(self, action: RunBatch, items: list[Any]) -> None:
        copy = self._copy
        copy.batches += 1
        run = BatchRun(action, items, copy.clock.monotonic())
        lane = action.lane
        if self._runs.setdefault(lane, run) is not run:
            self._runs_ahead[lane] = run
        begin = self._run_here if action.here else self.engine.run
        begin(lane, items, action.bucket, partial(self._done, run))

    def _done(self, run: BatchRun, results: Any) -> None:
        now = self._copy.clock.monotonic()
        lane = run.action.lane
        run_us = int((now - run.started) * 1e6)
        self._copy.run_us += run_us
        ahead = self._runs_ahead.pop(lane, None)
        if ahead is None:
            del self._runs[lane]
        else:
            self._runs[lane] = ahead
            ahead.started = now
        if results is None:
            results = [Returned(reason_of_death(len(run.items) - 1))] * len(run.items)
        elif isinstance(results, BaseException):
            results = [results] * len(run.items)
        if ModelError in map(type, results):
            results = self._without_lost(run, results)
        # The lane is freed first: it runs the next batch while these answers are written.
        self._copy.lane_freed(lane)
        for item, result in zip(run.items, results, strict=True):
            request = item.whole or item
            if request.answered:
                continue
            if type(result) is Returned:
                reason = result.reason
                if reason == WORKER_DIED_IN_COMPANY:
                    reason = reason_of_death(1, alone=request.alone)
                self._given_back(request, reason)
            elif isinstance(result, BaseException):
                self._fail(request, replies.as_error(result, "running the model"), run, run_us)
            elif type(result) is PayloadReply:
                self._answer_payload(request, result, run, run_us)
            elif item.whole is None:
                self._answer(request, result, run, run_us)
            else:
                item.result = result
                request.lane_us += run_us * item.rows // run.action.rows
                request.parts_left -= 1
                if not request.parts_left:
                    self._answer_joined(request, run, run_us)

    def _without_lost(self, run: BatchRun, results: list[Any]) -> list[Any]:
        """Where the process is lost, nothing begins here any more. What was being computed is given
        back, with what is known of the cause: it may be on any lane, for they share the process."""
        lost = next(filter(broken.ends_process, results), None)
        if lost is None:
            return results
        lane = run.action.lane
        if not self._lost_with:
            others = (each for at, each in self._runs.items() if at != lane)
            self._lost_with = [run, *others]
            self._copy.lane_failed(lane, lost)
            broken.end_soon(lost)
        company = sum(len(each.items) for each in self._lost_with) - 1
        back = Returned(reason_of_death(company)) if run in self._lost_with else NOT_BEGUN
        return [back if broken.ends_process(each) else each for each in results]

    # Answers

    def _answer_payload(
        self, request: Request, reply: PayloadReply, run: BatchRun, run_us: int
    ) -> None:
        if reply.error is not None:
            self._fail(request, reply.error, run, run_us)
            return
        if reply.streamed:
            self._copy.requests += 1
            queue_us = int((run.started - request.received) * 1e6)
            self._copy.answer(request, end_of_stream(request, run.action, queue_us, run_us))
            return
        try:
            meta = replies.reply_meta(reply.content_type, reply.custom_attributes)
        except frames.FrameError:
            error = ModelError("head-too-large", "the model's reply headers are too large")
            self._fail(request, error, run, run_us)
            return
        self._reply(request, meta, reply.body, run, run_us)

    def _answer_joined(self, request: Request, run: BatchRun, run_us: int) -> None:
        parts = request.parts or []
        try:
            joined = self.engine.join([part.result for part in parts])
        except Exception as error:  # outputs of parts that do not fit together
            self._fail(request, replies.as_error(error, "joining the answer"), run, run_us)
            return
        self._answer(request, joined, run, run_us)

    def _answer(self, request: Request, outputs: Any, run: BatchRun, run_us: int) -> None:
        decoded = request.decoded
        assert decoded is not None
        elsewhere = self._copy.elsewhere
        if elsewhere is not None and _bytes_of(outputs) > LOOP_BYTES_MAX:
            elsewhere(
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

    def _encoded(self, request: Request, written: Any, run: BatchRun, run_us: int) -> None:
        if request.answered:
            return
        if isinstance(written, BaseException):
            self._fail(request, replies.as_error(written, "writing the answer"), run, run_us)
        else:
            self._reply(request, written[1], written[0], run, run_us)

    def _reply(
        self, request: Request, meta: bytes, body: bytes, run: BatchRun, run_us: int
    ) -> None:
        action = run.action
        self._copy.requests += 1
        if request.parts is None:
            lane_us = run_us * request.rows // (action.rows or 1)
        else:
            lane_us = min(request.lane_us, _US_MAX)
        self._copy.answer(
            request,
            frames.HEAD.pack(
                _REPLY_BYTES + len(meta) + len(body), frames.REPLY, 0, len(meta), request.ident
            )
            + frames.REPLY_HEAD.pack(
                200,
                action.rows,
                action.lane,
                _REASONS.get(action.reason, 0),
                int((run.started - request.received) * 1e6),
                run_us,
                lane_us,
            )
            + meta
            + body,
        )

    def _given_back(self, request: Request, reason: str) -> None:
        self._copy.give_back(request, reason)

    def _fail(self, request: Request, error: PenstockError, run: BatchRun, run_us: int) -> None:
        queue_us = int((run.started - request.received) * 1e6)
        self._copy.fail(request, error, queue_us=queue_us, run_us=run_us)


def _bytes_of(outputs: dict[str, Any]) -> int:
    return sum(array.nbytes for array in outputs.values())
