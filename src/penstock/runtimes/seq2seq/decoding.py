"""The decode loop: carries out the plans of `core.stepping` on a model, one step a turn.

It lives on one thread and decides nothing: the `Stepper` says who joins, who leaves and why, the
search which token comes next. A failing step fails only the requests of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.clock import Clock
from penstock.core.batching.stepping import DecodeStep, Drop, Move, Prefill, Stepper, SteppingSpec
from penstock.errors import ModelError, NotNowError, PenstockError
from penstock.runtimes.seq2seq.model import Seq2SeqModel
from penstock.runtimes.seq2seq.request import GenerationRequest
from penstock.runtimes.seq2seq.search import search


class DecodingJob:
    """One answer to generate. `done(tokens | error | None)` is called once, on the loop's thread;
    None means that the request was cancelled."""

    __slots__ = ("deadline", "done", "is_cancelled", "request", "rows", "search", "source")

    def __init__(
        self,
        source: Sequence[int],
        request: GenerationRequest,
        done: Callable[[list[int] | PenstockError | None], None],
        *,
        deadline: float | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.source = source
        self.request = request
        self.done = done
        self.deadline = deadline
        self.is_cancelled = is_cancelled
        self.rows: list[int] = []
        self.search: Any = None


class DecodeLoop:
    """`add` jobs, then `turn` while `busy`."""

    def __init__(
        self,
        model: Seq2SeqModel,
        clock: Clock,
        *,
        start_id: int,
        eos_ids: tuple[int, ...],
        buckets: tuple[int, ...] = (),
    ) -> None:
        self._model = model
        self._clock = clock
        self._start_id = start_id
        self._eos_ids = eos_ids
        self._spec = SteppingSpec(model.rows_max, buckets=buckets)
        self.stepper = Stepper(self._spec)
        self._jobs: dict[int, DecodingJob] = {}
        self._running: dict[int, DecodingJob] = {}
        self._last_id = 0

    @property
    def busy(self) -> bool:
        return self.stepper.busy

    def add(self, job: DecodingJob) -> None:
        ident = self._last_id = self._last_id + 1
        self._jobs[ident] = job
        request = job.request
        for action in self.stepper.add(
            ident,
            rows=request.num_beams,
            tokens=len(job.source),
            steps_min=max(1, request.min_new_tokens),
            deadline=job.deadline,
            now=self._clock.monotonic(),
        ):
            assert type(action) is Drop
            self._drop(action)

    def turn(self) -> None:
        """Drops, prefills and moves as planned, and makes one step."""
        for ident, job in self._jobs.items():
            if job.is_cancelled():
                self.stepper.cancel(ident)
        started = self._clock.monotonic()
        for action in self.stepper.plan(now=started):
            if type(action) is DecodeStep:
                started = self._clock.monotonic()
                self._step(action.rows)
                self.stepper.stepped(self._clock.monotonic() - started)
            elif type(action) is Prefill:
                if not self._prefill(action):
                    return  # the plan is out of date: the next turn makes another
            elif type(action) is Move:
                self._move(action)
            elif type(action) is Drop:
                self._drop(action)

    def fail_all(self, error: PenstockError) -> None:
        """Fails all requests and starts again with empty state: after a bug no state can be
        trusted."""
        jobs, self._jobs, self._running = self._jobs, {}, {}
        self.stepper = Stepper(self._spec)
        for job in jobs.values():
            job.done(error)

    # Actions

    def _drop(self, action: Drop) -> None:
        job = self._jobs.pop(action.id)
        self._running.pop(action.id, None)
        made = len(job.search.tokens) if job.search is not None else 0
        if action.reason == "cancelled":
            job.done(None)
        elif action.reason == "too-many-rows":
            job.done(_too_many_rows(job.request.num_beams, self._model.rows_max))
        else:
            job.done(_too_late(action.reason, made))

    def _prefill(self, action: Prefill) -> bool:
        jobs = [self._jobs[ident] for ident in action.ids]
        kept = max((row + 1 for job in self._running.values() for row in job.rows), default=0)
        try:
            self._model.prefill([job.source for job in jobs], action.rows, kept)
        except Exception as error:  # the library's: requests of this prefill end, others go on
            for ident, job in zip(action.ids, jobs, strict=True):
                self._running[ident] = job
                self._fail(ident, error)
            return False
        for ident, job, rows in zip(action.ids, jobs, action.rows, strict=True):
            job.rows = list(rows)
            job.search = search(job.request, self._start_id, self._eos_ids)
            self._running[ident] = job
        return True

    def _move(self, action: Move) -> None:
        self._model.rows.move(action.source, action.target)
        for job in self._running.values():
            if action.source in job.rows:
                job.rows[job.rows.index(action.source)] = action.target

    def _step(self, rows: int) -> None:
        caches = self._model.rows
        longest = source = 0
        for job in self._running.values():
            first = job.rows[0]
            if len(job.rows) == 1:
                caches.ids[first, 0] = job.search.next_tokens[0]
            else:
                caches.ids[job.rows, 0] = job.search.next_tokens
            longest = max(longest, caches.positions.item(first))
            source = max(source, len(job.source))
        caches.fit(rows, past=longest + 1, source=source)
        try:
            logits = self._model.step(rows)
        except Exception as error:  # as in _prefill
            for ident in list(self._running):
                self._fail(ident, error)
            return
        for ident, job in list(self._running.items()):
            self._advance(ident, job, logits)

    def _advance(self, ident: int, job: DecodingJob, logits: np.ndarray) -> None:
        rows = job.rows
        mine = logits[rows[0] : rows[0] + 1] if len(rows) == 1 else logits[rows]
        try:
            finished = job.search.advance(mine)
        except Exception as error:  # only this request fails
            self._model.rows.clear(rows)
            self._fail(ident, error)
            return
        if finished:
            self._end(ident)
            job.done(job.search.tokens)
        elif job.search.order is not None:
            self._model.rows.reorder(rows, job.search.order)

    # Ends

    def _end(self, ident: int) -> None:
        del self._jobs[ident]
        del self._running[ident]
        self.stepper.finish(ident)

    def _fail(self, ident: int, error: Exception) -> None:
        job = self._jobs[ident]
        self._end(ident)
        if not isinstance(error, PenstockError):
            words = " ".join(str(error).split())[:300]
            error = ModelError("model-failed", f"the model failed: {words}")
        job.done(error)


def _too_many_rows(beams: int, rows_max: int) -> PenstockError:
    return ModelError(
        "too-many-rows",
        f"{beams} beams need {beams} rows, the model's batch has {rows_max}",
        hint="Ask for fewer beams, or raise batching.rows_max in model.yaml.",
        original_status=400,
    )


def _too_late(reason: str, made: int) -> PenstockError:
    if reason == "deadline-passed":
        words = f"the deadline passed after {made} tokens"
    else:
        words = f"the deadline cannot be met: {made} tokens are written"
    return NotNowError(reason, words, hint="Ask for fewer tokens, or allow more time.")
