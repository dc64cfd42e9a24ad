"""One generating model: requests in, an engine process that answers many at once, frames out.

A slot is one sequence in the engine; the batcher in front holds what waits for a slot, with
priorities, deadlines and limits, so that what nobody wants any more never reaches the engine. A
request is answered exactly once: with REPLY, with CHUNK frames and then END or ERROR, with ERROR,
or with RETURNED, unless it was cancelled. What has streamed is never given back.

It has the face that connections and the server know of `copy.Copy`. Decides nothing: order is the
batcher's, the next token the engine's, restarts the runtime's.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import orjson

from penstock.clock import Clock
from penstock.core.batching import Action, Batcher, BatchSpec, RunBatch
from penstock.core.retry import blamed
from penstock.errors import CallerError, ModelError, PenstockError, from_dict
from penstock.instance import replies
from penstock.instance.batcher_driver import BatcherDriver, CallAt
from penstock.instance.codecs.generation.calls import (
    Answer,
    Event,
    GenerationCall,
    Served,
    json_header_bytes,
)
from penstock.instance.codecs.generation.select import decode
from penstock.instance.engines.lane_threads import LaneThreads
from penstock.instance.request import Request
from penstock.wire import frames

_REASONS = frames.BATCH_REASON_CODES
#: Doors in front of a model's own protocol: what the model refuses is the model's answer there.
_MODEL_DOORS = ("runtime", "admin")


class Generating:
    """A request that has a slot."""

    __slots__ = ("action", "answer", "call", "first", "ident", "request", "started", "streamed")

    def __init__(
        self, ident: int, request: Request, call: GenerationCall, action: RunBatch, started: float
    ) -> None:
        self.ident = ident
        self.request = request
        self.call = call
        self.action = action
        self.answer = Answer()
        self.started = started  #: monotonic s
        self.first: float | None = None  #: monotonic s of the first token
        self.streamed = False  #: a CHUNK has left


class GenerationCopy:
    """`runtime`: a `GenerationRuntime`. See `copy.Copy` for the rest."""

    _decode: Callable[..., Any] = staticmethod(decode)  #: bodies into what the runtime is asked

    def __init__(
        self,
        number: int,
        runtime: Any,
        spec: BatchSpec,
        *,
        clock: Clock,
        call_at: CallAt,
        name: str,
        version: str,
        helper: LaneThreads | None = None,
        on_state: Callable[[str, PenstockError | None], None] = lambda event, error: None,
        observe: Callable[[list[Action]], None] | None = None,
    ) -> None:
        self.number = number
        self.state = "ready"  #: ready | lost | failed | draining | closed
        self.batches = 0  #: requests that got a slot
        self.requests = 0  #: answered
        self._runtime = runtime
        self._clock = clock
        self._on_state = on_state
        self._generating: dict[int, Generating] = {}
        self._running: dict[Request, Generating] = {}
        self._idents = itertools.count(1)
        self._suspect: Request | None = None
        self._lost = False
        self._lanes_held: list[int] = []  #: freed while the engine was lost
        self._unanswered = 0
        self._on_idle: Callable[[], None] | None = None
        numbers = itertools.count(1)
        stem = os.urandom(8).hex()
        self._served = Served(
            name=name,
            version=version,
            new_id=lambda: f"{stem}{next(numbers):08x}",
            now_s=lambda: int(time.time()),
        )
        self.driver: BatcherDriver[Any] = BatcherDriver(
            Batcher(spec), clock=clock, call_at=call_at, run=self._run, drop=self._drop,
            observe=observe,
        )  # fmt: skip
        runtime.attach(self._on_events, lambda: bool(self._generating))

    @property
    def unanswered(self) -> int:
        """Requests taken and not yet answered."""
        return self._unanswered

    # requests

    def accept(self, request: Request, now: float) -> None:
        """Takes a request. The connection calls `driver.turn` after all of one socket read."""
        if self.state in ("lost", "failed", "closed"):
            self._turn_back(request, f"copy-{self.state}")
            return
        if request.alone:
            # One suspect at a time, until it has begun to be answered: whoever dies is known.
            if self._suspect is not None and not self._suspect.answered:
                self._turn_back(request, "another-is-tried-alone")
                return
            self._suspect = request
        self._unanswered += 1
        try:
            request.data = self._decode(
                frames.decode_request_meta(request.meta), request.body, self._served
            )
        except Exception as error:  # a codec's error, or a bug that must not end the loop
            self._fail(request, replies.as_error(error, "reading the request"))
            return
        request.body = b""
        request.number = self.driver.add(
            request, priority=request.priority, deadline=request.deadline, now=now
        )

    def _turn_back(self, request: Request, reason: str) -> None:
        request.answered = True
        request.sink.forget(request.ident)
        request.sink.send(replies.returned_frame(request.ident, reason))

    def cancel(self, request: Request) -> None:
        """Nobody wants the answer: what waits leaves, what is generated ends within a step."""
        if request.answered:
            return
        generating = self._running.get(request)
        self._close(request)
        if generating is not None:
            self._runtime.cancel([generating.ident])
            self._leave(generating)

    # the driver's callbacks

    def _run(self, action: RunBatch, items: list[Request]) -> None:
        (request,) = items
        self.batches += 1
        ident = next(self._idents)
        call = request.data
        generating = Generating(ident, request, call, action, self._clock.monotonic())
        self._runtime.add(ident, call.prompt, call.sampling)
        self._generating[ident] = generating
        self._running[request] = generating

    def _drop(self, request: Request, reason: str) -> None:
        if request.answered:
            return
        if reason == "draining":
            self._return(request, reason)
        else:
            self._fail(request, replies.not_now(reason))

    def _leave(self, generating: Generating) -> None:
        """The sequence is over; its slot takes the next request."""
        self._generating.pop(generating.ident, None)
        self._running.pop(generating.request, None)
        if self._lost:
            self._lanes_held.append(generating.action.lane)
        else:
            # How long an answer took says nothing of the next one: not a run time to learn from.
            self.driver.lane_freed(generating.action.lane, timed=False)

    # what the engine says

    def _on_events(self, events: list[Event]) -> None:
        now = self._clock.monotonic()
        for event in events:
            generating = self._generating.get(event["i"])
            if generating is None:
                continue  # cancelled meanwhile
            if "e" in event:
                self._fail_running(generating, from_dict(event["e"]))
                continue
            if generating.first is None and "t" in event:
                generating.first = now
                if generating.request is self._suspect:
                    self._suspect, generating.request.alone = None, False
            generating.answer.add(event)
            try:
                self._write(generating, event, now)
            except Exception as error:  # a bug in a codec must not end the loop
                self._runtime.cancel([generating.ident])
                self._fail_running(generating, replies.as_error(error, "writing the answer"))

    def _write(self, generating: Generating, event: Event, now: float) -> None:
        call, answer = generating.call, generating.answer
        writer, last = call.writer, "f" in event
        if writer.stream:
            chunk = writer.chunk(event, answer)
            if chunk:
                self._send_chunk(generating, chunk)
            if last:
                self._end(generating, frames.END, b"", now)
        elif last:
            self._end(generating, frames.REPLY, writer.whole(answer), now)

    def _send_chunk(self, generating: Generating, chunk: bytes) -> None:
        request = generating.request
        if generating.streamed:
            frame = frames.encode(frames.CHUNK, request.ident, chunk)
        else:
            generating.streamed = True
            meta = replies.reply_meta(generating.call.writer.content_type, None)
            frame = frames.encode(
                frames.CHUNK,
                request.ident,
                meta + chunk,
                flags=frames.FIRST,
                meta_bytes=len(meta),
            )
        request.sink.send(frame)

    def _end(self, generating: Generating, kind: int, body: bytes, now: float) -> None:
        request, action = generating.request, generating.action
        writer = generating.call.writer
        meta = frames.encode_reply_meta(
            frames.ReplyMeta(
                writer.content_type,
                json_header_bytes=json_header_bytes(writer) if kind == frames.REPLY else None,
                generation=self._told(generating, now),
            )
        )
        self.requests += 1
        self._runtime.served()
        self._close(request)
        request.sink.send(
            frames.encode_reply(
                request.ident,
                kind=kind,
                batch_rows=max(1, self._runtime.statistics.running),
                lane=min(action.lane, 255),
                reason=_REASONS.get(action.reason, 0),
                queue_us=_us(generating.started - request.received),
                run_us=_us(now - generating.started),
                meta=meta,
                body=body,
            )
        )
        self._leave(generating)

    def _told(self, generating: Generating, now: float) -> str:
        """Counts and times for metrics; all times in s."""
        answer, received = generating.answer, generating.request.received
        first = generating.first if generating.first is not None else now
        return orjson.dumps(
            {
                "tokens_in": answer.tokens_in,
                "tokens_out": answer.tokens_out,
                "tokens_cached": answer.tokens_cached,
                "queue_s": round(generating.started - received, 6),
                "first_token_s": round(first - received, 6),
                "total_s": round(now - received, 6),
                "finish": answer.finish,
            }
        ).decode()

    # answers

    def _fail_running(self, generating: Generating, error: PenstockError) -> None:
        request = generating.request
        if not request.answered:
            now = self._clock.monotonic()
            self._fail(request, error, _us(generating.started - request.received),
                       _us(now - generating.started))  # fmt: skip
        self._leave(generating)

    def _fail(
        self, request: Request, error: PenstockError, queue_us: int = 0, run_us: int = 0
    ) -> None:
        self._close(request)
        shown = _as_the_model_says(error, request)
        request.sink.send(
            replies.error_frame(request.ident, shown, queue_us=queue_us, run_us=run_us)
        )

    def _return(self, request: Request, reason: str) -> None:
        self._close(request)
        request.sink.send(replies.returned_frame(request.ident, reason))

    def _close(self, request: Request) -> None:
        """No answer follows but the one the caller is about to send."""
        request.answered = True
        request.sink.forget(request.ident)
        if request.number:
            self.driver.cancel(request.number)
        self._unanswered -= 1
        if not self._unanswered and self._on_idle is not None:
            self._on_idle()

    # the engine's life (see runtimes.python.runtime.LaneListener)

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self._lost = True
        if self.state == "ready":
            self.state = "lost"
        broken = ModelError(
            "stream-broken",
            "the engine's process ended in the middle of the answer",
            hint="Send the request again; the engine starts anew by itself.",
        )
        company = len(self._generating) - 1
        for generating in list(self._generating.values()):
            request = generating.request
            if generating.streamed:
                self._fail(request, broken)
            elif not request.answered:
                self._return(request, blamed(company, alone=request.alone))
            self._leave(generating)
        self._give_back("copy-lost")
        if self.state == "lost":
            self._on_state("copy-lost", error)

    def lane_ready(self, lane: int) -> None:
        self._lost = False
        if self.state == "lost":
            self.state = "ready"
            self._on_state("copy-ready", None)
        held, self._lanes_held = self._lanes_held, []
        for each in held:
            self.driver.lane_freed(each, timed=False)

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        if self.state in ("failed", "closed"):
            return
        self.state = "failed"
        self._give_back("copy-failed")
        self._on_state("copy-failed", error)

    def _give_back(self, reason: str) -> None:
        for request in self.driver.give_back():
            if not request.answered:
                self._return(request, reason)

    # the end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Takes no more; `on_idle` is called when everything taken is answered (maybe at once)."""
        self.state = "draining"
        self._on_idle = on_idle
        self.driver.drain()
        if not self._unanswered:
            on_idle()

    def close(self) -> None:
        """Whoever is not answered is given back; an answer that has begun is broken off."""
        self.state = "closed"
        self._on_idle = None
        self._lost = True  # slots are not filled again
        self._give_back("draining")
        stopping = ModelError("stream-broken", "the model is being unloaded")
        for generating in list(self._generating.values()):
            if generating.streamed:
                self._fail(generating.request, stopping)
            else:
                self._return(generating.request, "draining")
            self._leave(generating)
        self.driver.close()

    def statistics(self) -> dict[str, Any]:
        """For the instance's status: what gauges show."""
        seen = self._runtime.statistics
        return {
            "sequences_running": seen.running,
            "sequences_waiting": seen.waiting + self.driver.queue_rows,
            "cache_use": round(seen.cache_use, 4),
            "cache_bytes": seen.cache_bytes,
        }

    def explain(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "batches": self.batches,
            "requests": self.requests,
            "unanswered": self._unanswered,
            "generation": self.statistics() | {"engine": dict(self._runtime.about)},
            "batcher": self.driver.snapshot(),
        }


def _us(seconds: float) -> int:
    return max(0, min(int(seconds * 1e6), 0xFFFFFFFF))


def _as_the_model_says(error: PenstockError, request: Request) -> PenstockError:
    """At SageMaker's door the model answers for its own protocol: 424 with the model's status."""
    if not isinstance(error, CallerError):
        return error
    if frames.decode_request_meta(request.meta).door not in _MODEL_DOORS:
        return error
    return ModelError(
        error.code, error.message, hint=error.hint, original_status=error.status,
        original_message=error.message,
    )  # fmt: skip
