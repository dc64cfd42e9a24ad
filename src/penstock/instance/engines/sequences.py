"""Requests that have a slot each, in a process that answers many at once, step by step.

A slot is one sequence in the engine. Requests wait for a slot in the batcher, with priorities,
deadlines and limits, so cancelled requests never reach the engine. An answer is one frame, or CHUNK
frames and their END.

This module decides nothing: the batcher orders requests, the engine chooses tokens, the runtime
restarts processes.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson

from penstock.core.batching.batcher import RunBatch
from penstock.core.blame.poison_requests import reason_of_death
from penstock.errors import CallerError, ModelError, PenstockError, from_dict
from penstock.instance import replies
from penstock.instance.codecs.base import as_asked
from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GenerationCall,
    Served,
)
from penstock.instance.codecs.generation.select import decode
from penstock.instance.copy import Work
from penstock.instance.request import Request
from penstock.wire import frames

_REASONS = frames.BATCH_REASON_CODES
#: Front doors to a model's own protocol: there, the model's refusals are the model's answers.
_MODEL_DOORS = ("runtime", "admin")


class Sequence:
    """A request that has a slot."""

    __slots__ = ("action", "answer", "call", "first", "ident", "request", "started", "streamed")

    def __init__(self, ident: int, request: Request, action: RunBatch, started: float) -> None:
        self.ident = ident
        self.request = request
        self.call: GenerationCall = request.data
        self.action = action
        self.answer = GeneratedAnswer()
        self.started = started  #: monotonic s
        self.first: float | None = None  #: monotonic s of the first token
        self.streamed = False  #: True once a CHUNK was sent


class Sequences(Work):
    """`runtime`: a `GenerationRuntime`."""

    shares_worker = True
    one_worker = True
    loop_bytes_max = sys.maxsize  #: no limit: prompts are tokenized in the engine's process

    _read: Callable[..., Any] = staticmethod(decode)  #: reads bodies into requests for the runtime

    def __init__(self, runtime: Any, *, name: str, version: str) -> None:
        self.decode = self._decoded
        self._runtime = runtime
        self._running: dict[int, Sequence] = {}
        self._of_request: dict[Request, Sequence] = {}
        self._idents = itertools.count(1)
        numbers = itertools.count(1)
        stem = os.urandom(8).hex()
        self._served = Served(
            name=name,
            version=version,
            new_id=lambda: f"{stem}{next(numbers):08x}",
            now_s=lambda: int(time.time()),
            sampling=runtime.about.get("sampling", {}),
        )
        runtime.attach(self._on_events, self._on_lost)

    def _decoded(self, meta: bytes, body: bytes) -> Any:
        asked = frames.decode_request_meta(meta)
        try:
            return self._read(asked, body, as_asked(self._served, asked))
        except CallerError as error:
            raise _as_the_model_says(error, meta) from None

    def queue(self, request: Request, outcome: Any, now: float) -> None:
        request.data = outcome
        request.number = self._copy.driver.add(
            request, priority=request.priority, deadline=request.deadline, now=now
        )

    def run(self, action: RunBatch, items: list[Request]) -> None:
        (request,) = items
        self._copy.batches += 1
        sequence = Sequence(next(self._idents), request, action, self._copy.clock.monotonic())
        self._start(sequence)
        self._running[sequence.ident] = self._of_request[request] = sequence

    def _start(self, sequence: Sequence) -> None:
        by = sequence.request.by
        adapter = by.key if by is not None else ""
        self._runtime.add(sequence.ident, sequence.call.prompt, sequence.call.sampling, adapter)

    def cancelled(self, request: Request) -> None:
        """Generation stops within a step."""
        sequence = self._of_request.get(request)
        if sequence is not None:
            self._runtime.cancel([sequence.ident])
            self._leave(sequence)

    def unbegun(self) -> list[Request]:
        """Requests that wait inside the engine, by its last report: the newest ones without a
        token."""
        waiting = self._runtime.statistics.waiting
        silent = [each.request for each in self._running.values() if each.first is None]
        return silent[-waiting:] if waiting else []

    def _leave(self, sequence: Sequence) -> None:
        """The sequence has ended; its slot takes the next request."""
        self._running.pop(sequence.ident, None)
        self._of_request.pop(sequence.request, None)
        self._copy.run_us += _us(self._copy.clock.monotonic() - sequence.started)
        # An answer's duration says nothing about the next one: the batcher must not learn from it.
        self._copy.lane_freed(sequence.action.lane, timed=False)

    # Events from the engine

    def _on_events(self, events: list[Event]) -> None:
        now = self._copy.clock.monotonic()
        for event in events:
            sequence = self._running.get(event["i"])
            if sequence is None:
                continue  # cancelled meanwhile
            if "e" in event:
                # Only a door of text generation has names of its own for parameters.
                names = getattr(sequence.call, "names", {})
                self._fail(sequence, _named(from_dict(event["e"]), names))
                continue
            if sequence.first is None and "t" in event:
                sequence.first = now
                # Its prompt did not kill the process; later deaths have other causes
                sequence.request.alone = False
            sequence.answer.add(event)
            try:
                self._write(sequence, event, now)
            except Exception as error:  # a bug in a codec must not end the loop
                self._runtime.cancel([sequence.ident])
                self._fail(sequence, replies.as_error(error, "writing the answer"))

    def _write(self, sequence: Sequence, event: Event, now: float) -> None:
        writer, answer = sequence.call.writer, sequence.answer
        last = "f" in event
        if writer.stream:
            chunk = writer.chunk(event, answer)
            if chunk:
                self._send_chunk(sequence, chunk)
            if last:
                self._end(sequence, frames.END, b"", now)
        elif last:
            self._end(sequence, frames.REPLY, writer.whole(answer), now)

    def _send_chunk(self, sequence: Sequence, chunk: bytes) -> None:
        request = sequence.request
        if sequence.streamed:
            frame = frames.encode(frames.CHUNK, request.ident, chunk)
        else:
            sequence.streamed = True
            meta = replies.reply_meta(sequence.call.writer.content_type, None)
            frame = frames.encode(
                frames.CHUNK,
                request.ident,
                meta + chunk,
                flags=frames.FIRST,
                meta_bytes=len(meta),
            )
        request.sink.send(frame)

    def _end(self, sequence: Sequence, kind: int, body: bytes, now: float) -> None:
        request, action = sequence.request, sequence.action
        writer = sequence.call.writer
        generated = not sequence.answer.tokenized  # else nothing of it is an answer of the model
        meta = frames.encode_reply_meta(
            frames.ReplyMeta(
                writer.content_type,
                json_header_bytes=writer.json_header_bytes if kind == frames.REPLY else None,
                generation=self._tells(sequence, now) if generated else None,
            )
        )
        self._copy.requests += 1
        self._runtime.served()
        run_us = _us(now - sequence.started)
        self._copy.answer(
            request,
            frames.encode_reply(
                request.ident,
                kind=kind,
                batch_rows=max(1, self._runtime.statistics.running) if generated else 0,
                lane=min(action.lane, 255),
                reason=_REASONS.get(action.reason, 0),
                queue_us=_us(sequence.started - request.received),
                run_us=run_us,
                lane_us=run_us,  # it uses its slot alone
                meta=meta,
                body=body,
            ),
        )
        self._leave(sequence)

    def _tells(self, sequence: Sequence, now: float) -> str | None:
        """Counts and times of a finished answer, for the gateway's metrics; all times in s."""
        answer, received = sequence.answer, sequence.request.received
        first = sequence.first if sequence.first is not None else now
        return orjson.dumps(
            {
                "tokens_in": answer.tokens_in,
                "tokens_out": answer.tokens_out,
                "tokens_cached": answer.tokens_cached,
                "queue_s": round(sequence.started - received, 6),
                "first_token_s": round(first - received, 6),
                "total_s": round(now - received, 6),
                "finish": answer.finish,
            }
        ).decode()

    def _fail(self, sequence: Sequence, error: PenstockError) -> None:
        request = sequence.request
        if not request.answered:
            self._copy.fail(
                request,
                _as_the_model_says(error, request.meta),
                queue_us=_us(sequence.started - request.received),
                run_us=_us(self._copy.clock.monotonic() - sequence.started),
            )
        self._leave(sequence)

    # The end of all sequences

    def lost(self) -> None:
        self._break_off(list(self._running.values()))

    def _on_lost(self, idents: set[int]) -> None:
        """A replaced process ended before it had answered all of its requests."""
        lost = [self._running[ident] for ident in sorted(idents) if ident in self._running]
        self._break_off(lost)

    def _break_off(self, sequences: list[Sequence]) -> None:
        company = len(sequences) - 1
        self._end_all(
            sequences, _broken(), lambda request: reason_of_death(company, alone=request.alone)
        )

    def close(self) -> None:
        """Gives back unanswered requests; cancels answers that have begun."""
        self._end_all(list(self._running.values()), _unloaded(), lambda request: "draining")

    def end(self, requests: list[Request]) -> None:
        """As `close`, for some requests; those without a slot are given back."""
        sequences = [self._of_request[each] for each in requests if each in self._of_request]
        self._runtime.cancel([sequence.ident for sequence in sequences])
        self._end_all(sequences, _unloaded(), lambda request: "draining")
        for request in requests:
            if not request.answered:
                self._copy.give_back(request, "draining")

    def _end_all(
        self, sequences: list[Sequence], broken: ModelError, reason: Callable[[Request], str]
    ) -> None:
        for sequence in sequences:
            request = sequence.request
            if sequence.streamed:
                self._copy.fail(request, broken)
            else:
                self._copy.give_back(request, reason(request))
            self._leave(sequence)

    # Reports

    def status(self) -> dict[str, Any]:
        seen = self._runtime.statistics
        return {
            "generation": {
                "sequences_running": seen.running,
                "sequences_waiting": seen.waiting + self._copy.driver.queue_rows,
                "cache_use": round(seen.cache_use, 4),
                "cache_bytes": seen.cache_bytes,
            }
        }

    def explain(self) -> dict[str, Any]:
        told = self.status()
        told["generation"]["engine"] = dict(self._runtime.about)
        return told


def _broken() -> ModelError:
    return ModelError(
        "stream-broken",
        "the engine's process ended in the middle of the answer",
        hint="Send the request again; the engine starts anew by itself.",
    )


def _unloaded() -> ModelError:
    return ModelError("stream-broken", "the model is being unloaded")


def _named(error: PenstockError, names: dict[str, str]) -> PenstockError:
    """The engine's words for a refusal, with the caller's own name of the parameter."""
    if isinstance(error, CallerError):
        error.param = names.get(error.param, error.param)
    return error


def _us(seconds: float) -> int:
    return max(0, min(int(seconds * 1e6), 0xFFFFFFFF))


def _as_the_model_says(error: PenstockError, meta: bytes) -> PenstockError:
    """At SageMaker's front door a refusal by the model's own protocol becomes 424 with the model's
    status."""
    if not isinstance(error, CallerError):
        return error
    if frames.decode_request_meta(meta).door not in _MODEL_DOORS:
        return error
    return ModelError(
        error.code, error.message, hint=error.hint, original_status=error.status,
        original_message=error.message,
    )  # fmt: skip
