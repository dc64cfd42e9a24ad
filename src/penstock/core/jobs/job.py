"""One transform job from its first span to its end.

Inputs: which copies there are, the results of spans and of outputs that were put together, and a
stop. Actions: begin a span on a copy, put an object's output together, record that an object gets
no output, release capacity, end the job. The machine may be made anew at any moment from what is
durable (finished spans, objects that have their output or get none), and then simply continues.

    waiting -> running -> done      a span; its copy commits the output, then reports it
       ^          |
       +----------+  its instance ended or was stopped, or a temporary cause prevented it

An object whose spans are all done is put together. An object that can't be read, or that has
refused records where none may be refused (`refused_max` 0), gets no output, and the job continues
with the others, as SageMaker does: in the end the job has Failed. Where `refused_max` is above 0,
more refused records than that end the job at once.

A span whose instance crashed is done again alone on its copy: if it was not the cause, another span
is found to be, and none is blamed for a neighbour. The records that caused it are found and refused
(`core/blame`). After `crashes_max` deaths with something in common for which no record can be
blamed, or after `crash_tries_max` deaths at all, its object has failed.

A span or an output that waits for a disk or a store is retried for a day (`Stuck` in
`progress.py`). While a disk is full no other span is begun: its output would find no room either.

Invariants: a span is waiting, running on one copy, done, or its object has failed; nothing is begun
after the end, or after a stop; the job ends once, when nothing runs and nothing is put together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.blame.death_limits import SEARCH_TRIES
from penstock.core.jobs.job_actions import (
    AWAY,
    COMPLETED,
    CRASH,
    FAILED,
    FULL,
    LATER,
    STOPPED,
    WRONG,
    Action,
    AssembleObject,
    EndJob,
    FailObject,
    JobPolicy,
    KeepCase,
    NotDone,
    ReleaseCapacity,
    RunSpan,
    StopSpans,
)
from penstock.core.jobs.progress import Stuck
from penstock.core.jobs.spec import InputObject, Span, SpanDone, SpanQueues

AGAIN: Final = "again"
APART: Final = "suspects-apart"

_Key = tuple[int, int]  #: (object, span)


class TransformJob:
    """The machine of one job. Call `begin` first, then report whatever happens."""

    def __init__(
        self,
        objects: Sequence[InputObject],
        spans: Sequence[Span],
        policy: JobPolicy,
        *,
        done: Iterable[SpanDone] = (),
        failed: Mapping[int, str] | None = None,
        assembled: Iterable[int] = (),
        refusals: Mapping[int, str] | None = None,
        cases: Mapping[_Key, CrashCase] | None = None,
    ) -> None:
        """`done`, `failed`, `assembled` and `cases`: what an earlier run has recorded. `refusals`:
        by object, the first refused record of its finished spans, and the reason."""
        self._policy = policy
        self._keys = {one.number: one.key for one in objects}
        self._failed = dict(failed or {})  #: object -> reason
        self._assembling: set[int] = set()
        self._refusals = dict(refusals or {})
        finished = {(one.object, one.span): one for one in done}
        self.refused = sum(one.refused for one in finished.values())
        self._left = dict.fromkeys(self._keys, 0)  #: object -> number of spans that are not done
        #: object -> whether it has more than one span
        self._several = dict.fromkeys(self._keys, False)
        waiting = []
        for span in spans:
            self._several[span.object] |= span.number > 0
            if (span.object, span.number) not in finished:
                self._left[span.object] += 1
                if span.object not in self._failed:
                    waiting.append(span)
        in_place = set(assembled)
        #: objects whose spans are all done, and whose output must be put together
        self._whole = {
            number: None
            for number, left in self._left.items()
            if not left and number not in in_place
        }
        self._shares = SpanQueues(waiting)
        self._again: list[tuple[float, Span]] = []  #: (due, span), of spans to be retried
        self._attempts: dict[_Key, int] = {}
        self._cases = {key: one for key, one in (cases or {}).items() if key not in finished}
        self._outputs: dict[int, float] = {}  #: object -> when its output is retried
        self._output_attempts: dict[int, int] = {}
        self._stuck = Stuck()  #: by span, and for outputs by object
        self._running: dict[_Key, tuple[int, Span]] = {}
        self._copies: tuple[int, ...] = ()
        self._ending: tuple[str, str, str] | None = None  #: (status, message, reason)
        self._stop_by = math.inf  #: when its instances are ended at the latest
        self._released = False
        self._seen = -math.inf  #: time of the last turn
        self.ended = False

    def begin(self, *, now: float) -> list[Action]:
        """Does what needs no copy, and what an earlier run could not record any more."""
        actions: list[Action] = []
        for number, words in sorted(self._refusals.items()):
            actions += self._refused(number, words)
        return actions + self._turn(now)

    def copies(self, copies: Collection[int], *, now: float) -> list[Action]:
        """The copies that answer. Spans on a copy that is gone end too, and that is reported."""
        self._copies = tuple(sorted(copies))
        self._shares.keep(self._copies)
        return self._turn(now)

    def done(self, span: Span, result: SpanDone, refusal: str = "", *, now: float) -> list[Action]:
        """A span's output is committed and recorded. `refusal`: its first refused one, and why."""
        self._running.pop((span.object, span.number), None)
        self._cases.pop((span.object, span.number), None)
        self._stuck.over((span.object, span.number))
        self._left[span.object] -= 1
        if not self._left[span.object]:
            self._whole[span.object] = None
        self.refused += result.refused
        actions = self._refused(span.object, refusal) if result.refused else []
        return actions + self._turn(now)

    def not_done(self, span: Span, why: NotDone, *, now: float) -> list[Action]:
        """A span has ended without a result."""
        key = span.object, span.number
        self._running.pop(key, None)
        if self._ending is not None or span.object in self._failed:
            self._stuck.over(key)
            return self._turn(now)
        where = f"bytes {span.start} to {span.stop}"
        count, policy = 0, self._policy
        if why.kind in (AWAY, FULL):
            due = self._stuck.failed(key, why.message, full=why.kind == FULL, now=now)
            if due is None:
                message = f"{where}: {why.message}"
                return [*self._fail(span.object, message, "storage-overdue"), *self._turn(now)]
            self._again.append((due, span))
            return self._turn(now)
        self._stuck.over(key)
        if why.kind == WRONG:
            return [*self._fail(span.object, why.message, "span-wrong"), *self._turn(now)]
        if why.kind == CRASH:
            return [*self._crashed(span, why, now), *self._turn(now)]
        if why.kind == LATER:
            count = self._attempts[key] = self._attempts.get(key, 0) + 1
            if count >= policy.attempts_max:
                message = f"{where}: tried {count} times: {why.message}"
                return [*self._fail(span.object, message, "span-attempts"), *self._turn(now)]
        self._again.append((now + self._policy.backoff.pause_s(count), span))
        return self._turn(now)

    def passed(self, span: Span, *, now: float) -> list[Action]:
        """Its suspects were run apart, and the instance is still alive."""
        key = span.object, span.number
        self._running.pop(key, None)
        if self._ending is not None or span.object in self._failed:
            return self._turn(now)
        case = self._cases[key] = self._cases[key].passed()
        self._again.append((now, span))
        return [KeepCase(*key, case, "suspects-passed"), *self._turn(now)]

    def assembled(self, number: int, *, now: float) -> list[Action]:
        """An object's output is in its place, and that is recorded."""
        self._assembling.discard(number)
        self._stuck.over(number)
        return self._turn(now)

    def not_assembled(self, number: int, why: NotDone, *, now: float) -> list[Action]:
        self._assembling.discard(number)
        # A job that is being stopped does not wait for a disk.
        if why.kind in (AWAY, FULL) and self._ending is None:
            due = self._stuck.failed(number, why.message, full=False, now=now)
            if due is None:
                return [*self._fail(number, why.message, "storage-overdue"), *self._turn(now)]
            self._outputs[number] = due
            return self._turn(now)
        self._stuck.over(number)
        count = self._output_attempts[number] = self._output_attempts.get(number, 0) + 1
        if why.kind == WRONG or count >= self._policy.attempts_max:
            reason = "output-wrong" if why.kind == WRONG else "output-attempts"
            return [*self._fail(number, why.message, reason), *self._turn(now)]
        self._outputs[number] = now + self._policy.backoff.pause_s(count)
        return self._turn(now)

    def stop(self, *, now: float) -> list[Action]:
        """Stops the job (StopTransformJob). Objects with all spans done still get their output."""
        return [*self._end_early(STOPPED, "", "stop-asked"), *self._turn(now)]

    def hopeless(self, message: str, *, now: float) -> list[Action]:
        """The job will never have a copy."""
        return [*self._end_early(FAILED, message, "hopeless"), *self._turn(now)]

    def on_timer(self, *, now: float) -> list[Action]:
        return self._turn(now)

    def next_deadline(self) -> float | None:
        """When to call `on_timer`; None: only an input can change anything."""
        due = list(self._outputs.values())
        if self._copies and self._ending is None:
            # A due span already waits for a free copy, which an input reports.
            due += [at for at, _ in self._again if at > self._seen]
        if self._ending is not None and self._running and not self._released:
            due.append(self._stop_by)
        return min(due, default=None)

    @property
    def waiting(self) -> int:
        """Number of spans that have not begun."""
        return len(self._shares) + len(self._again)

    @property
    def waits_for(self) -> str:
        """The disk or store problem that it waits for; empty: none."""
        return self._stuck.message

    def running(self) -> dict[_Key, int]:
        """(object, span) -> the copy that runs it."""
        return {key: copy for key, (copy, _) in self._running.items()}

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        held = [(span.object, span.number) for _, span in self._again]
        assert len(held) == len(set(held))
        assert not set(held) & self._running.keys()
        assert not self._assembling & self._failed.keys()
        assert all(count >= 0 for count in self._left.values())
        if self.ended:
            assert not self._running
            assert not self._assembling

    def _turn(self, now: float) -> list[Action]:
        """The actions that follow from the present state."""
        self._seen = now
        if self.ended:
            return []
        actions: list[Action] = []
        if self._ending is None:
            actions += self._hand_out(now)
        actions += self._put_together(now)
        return actions + self._release(now) + self._end()

    def _release(self, now: float) -> list[Action]:
        if self._ending is not None and self._stop_by == math.inf:
            self._stop_by = now + self._policy.stop_s_max
        over = not self._running and (self._ending is not None or not self.waiting)
        if self._released or not (over or now >= self._stop_by):
            return []
        self._released = True
        return [ReleaseCapacity("no-span-left" if over else "stop-overdue")]

    def _hand_out(self, now: float) -> list[Action]:
        actions: list[Action] = []
        load = dict.fromkeys(self._copies, 0)
        alone = set()
        for key, (copy, _) in self._running.items():
            if copy in load:
                load[copy] += 1
                if key in self._cases:
                    alone.add(copy)
        # Round by round: if there are few spans, each copy gets one before any gets two.
        for level in range(self._policy.spans_at_once):
            for copy in self._copies:
                if load[copy] != level or copy in alone:
                    continue
                found = self._next(copy, now, idle=level == 0)
                if found is None:
                    continue
                span, reason = found
                load[copy] += 1
                key = span.object, span.number
                case = self._cases.get(key)
                if case is not None:
                    alone.add(copy)
                    reason = APART if case.suspects else reason
                self._running[key] = copy, span
                actions.append(RunSpan(copy, span, reason, case))
        return actions

    def _next(self, copy: int, now: float, *, idle: bool) -> tuple[Span, str] | None:
        due = [
            (at, span)
            for at, span in self._again
            if now >= at and (idle or (span.object, span.number) not in self._cases)
        ]
        if due:
            first = min(due, key=lambda one: (one[0], one[1].object, one[1].number))
            self._again.remove(first)
            return first[1], AGAIN
        return None if self._stuck.full else self._shares.take(copy, len(self._copies))

    def _put_together(self, now: float) -> list[Action]:
        self._whole |= {number: None for number, at in self._outputs.items() if now >= at}
        actions: list[Action] = []
        for number in self._whole:
            if number not in self._failed:
                self._outputs.pop(number, None)
                self._assembling.add(number)
                actions.append(AssembleObject(number, "object-whole"))
        self._whole.clear()
        return actions

    def _crashed(self, span: Span, why: NotDone, now: float) -> list[Action]:
        """The span's instance ended. A record to blame beyond the allowed number ends the search:
        the rest runs once more, so that all its other refused records are reported too."""
        key, policy = (span.object, span.number), self._policy
        before = self._cases.get(key, CrashCase())
        case = before.died(why.at_work, why.message)
        where = f"bytes {span.start} to {span.stop}"
        if self._too_many(before):
            record, story = before.refused[0]
            message = f"{where}: record {record} of them ends the instances that have it: {story}"
            return self._fail(span.object, message, "span-crashes")
        if case.deaths >= policy.crashes_max or case.tries >= policy.crash_tries_max:
            message = f"{where}: {case.tries} instances ended while they had it: {why.message}"
            return self._fail(span.object, message, "span-crashes")
        if self._too_many(case):
            case = case.passed()
        self._cases[key] = case
        # A search continues without a pause for some tries; then whatever kills by chance gets time
        # to stop.
        count = case.tries - SEARCH_TRIES if case.suspects else case.tries
        self._again.append((now + self._policy.backoff.pause_s(count), span))
        return [KeepCase(*key, case, "instance-ended")]

    def _too_many(self, case: CrashCase) -> bool:
        """Whether it has more refused records than the job allows."""
        refused_max = self._policy.refused_max
        return refused_max is not None and self.refused + len(case.refused) > max(
            refused_max, self.refused
        )

    def _refused(self, number: int, words: str) -> list[Action]:
        """Records of an object were refused; `words` describe the first."""
        refused_max = self._policy.refused_max
        if refused_max == 0:
            return self._fail(number, words, "records-refused")
        if refused_max is not None and self.refused > refused_max:
            message = f"{self.refused} records were refused, one of {self._keys[number]}: {words}"
            return self._end_early(FAILED, message, "refused-too-many")
        return []

    def _fail(self, number: int, message: str, reason: str) -> list[Action]:
        if number in self._failed:
            return []
        told = f"{self._keys[number]}: {message}"
        self._failed[number] = told
        self._outputs.pop(number, None)
        if self._several[number]:  # its only span was begun, if it has one: no need to search
            self._shares.drop(number)
        for _, span in self._again:
            if span.object == number:
                self._stuck.over((number, span.number))
        self._again = [one for one in self._again if one[1].object != number]
        return [FailObject(number, told, reason)]

    def _end_early(self, status: str, message: str, reason: str) -> list[Action]:
        if self._ending is not None or self.ended:
            return []
        self._ending = status, message, reason
        for _, span in self._again:
            self._stuck.over((span.object, span.number))
        self._shares.clear()
        self._again.clear()
        return [StopSpans(reason)] if self._running else []

    def _end(self) -> list[Action]:
        if self._running or self._assembling or self._outputs:
            return []
        if self._ending is None:
            if self.waiting:
                return []
            self._ending = self._verdict()
        self.ended = True
        status, message, reason = self._ending
        return [EndJob(status, message, reason)]

    def _verdict(self) -> tuple[str, str, str]:
        if not self._failed:
            return COMPLETED, "", "all-objects-done"
        first = self._failed[min(self._failed)]
        others = len(self._failed) - 1
        more = f" ({others} other object{'s' if others > 1 else ''} failed too)" if others else ""
        return FAILED, first + more, "objects-failed"
