"""One transform job while it runs: the driver of its machine (`core/jobs/job.py`).

All events come to one inbox, and the machine gets them in that order. The driver carries out the
machine's actions; long ones are tasks whose results come back to the inbox. Everything is on record
before the machine hears of it. So a run may end at any moment and begin again from the record:
after a kill, and also when the database or the code fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.control.plane import ControlPlane
from penstock.control.store.store import Store
from penstock.core.backoff import Backoff
from penstock.core.jobs.capacity import HOPELESS
from penstock.core.jobs.job import TransformJob
from penstock.core.jobs.job_actions import (
    FAILED,
    STOPPED,
    Action,
    AssembleObject,
    EndJob,
    FailObject,
    KeepCase,
    NotDone,
    ReleaseCapacity,
    RunSpan,
    StopSpans,
)
from penstock.core.jobs.progress import Stuck
from penstock.core.request.storage_failures import is_storage
from penstock.errors import CallerError, PenstockError
from penstock.jobs.transform import transactions, work
from penstock.jobs.transform.capacity import JobCapacity, deployment_name, instances_max
from penstock.jobs.transform.outcomes import first_refusal, reason_of
from penstock.jobs.transform.records import JobRecord, JobTotals
from penstock.jobs.transform.spans import SpanCalls
from penstock.jobs.transform.work import JobOutputs, Tally

_log = logging.getLogger(__name__)

_TICK_S: Final = 1.0  #: how often counted values are updated
_KEPT_EVERY_S: Final = 10.0  #: how often the job's cost so far is recorded
_RETRY_S: Final = 1.0  #: pause after the database could not be written
_BUG_RETRY_S: Final = 5.0
_LISTING_ATTEMPTS_MAX: Final = 5  #: failed listings, other than by a store or a disk
_LISTING_RETRY: Final = Backoff(2.0, 16.0)
# What else may wait for a disk or a store, beside spans and outputs.
_LISTING: Final = "listing"
_RECORD: Final = "record"
_ENDING: Final = "ending"

P = ParamSpec("P")

_Told = Callable[[TransformJob], list[Action]]


class TransformRun:
    """The run of one job. `start` it; `ended` is called with its name and last status. `close`
    leaves the job unfinished."""

    def __init__(
        self,
        record: JobRecord,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: ArtifactSettings,
        parts_uri: str,
        ended: Callable[[str, str], None],
    ) -> None:
        self._record = record
        self.spec = record.spec
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._parts_uri = parts_uri
        self._ended = ended
        self._outcome = ""  #: the job's last status, once this run has recorded it
        self._inbox: asyncio.Queue[_Told] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._looks = False  #: True while a look at its copies is in the inbox
        self._stuck = Stuck()  #: for what the machine does not do: the listing, the record, the end
        self._machine: TransformJob | None = None
        self._again = False  #: True: the run failed and is to begin again from the record
        self._task: asyncio.Task[None] | None = None
        self._calls: SpanCalls | None = None
        self._outputs: JobOutputs | None = None
        self.tally = Tally(record.totals)
        self.capacity = JobCapacity(
            record.spec, plane, clock,
            instance_s=record.totals.instance_s, cost=record.totals.cost,
        )  # fmt: skip

    def start(self, *, stopping: bool) -> None:
        self._stopping = stopping
        self._task = asyncio.create_task(self._run(), name=f"transform-job {self._record.name}")

    def stop(self) -> None:
        """Carries out StopTransformJob. Idempotent."""
        if not self._stopping:
            self._stopping = True
            self._tell(lambda machine: machine.stop(now=self._clock.monotonic()))

    @property
    def waits_for(self) -> str:
        """The disk or store problem that the job waits for; empty: none."""
        return self._stuck.message or (self._machine.waits_for if self._machine else "")

    async def close(self) -> None:
        """For the end of the server: unfinished work is repeated from the record."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._cancel()

    # From start to end

    async def _run(self) -> None:
        name = self._record.name
        while True:
            try:
                if self._again:
                    database = self._plane.database
                    self._record = await database.call(transactions.describe, name)
                    self._again = False
                await self._once()
                break
            except PenstockError as error:
                _log.warning("transform job %s: %s: %s", name, error.code, error.message)
                pause_s = self._pause_s(_RECORD, error) or _RETRY_S
            except Exception:
                _log.exception("transform job %s failed and is taken up again", name)
                pause_s = _BUG_RETRY_S
            self._again = True
            await self._cancel()
            if self._calls is not None:  # calls whose results nobody reads would be in the way
                await self._calls.stop()
            await asyncio.sleep(pause_s)
        self._ended(name, self._outcome)

    async def _once(self) -> None:
        """Runs the job from its record to the end."""
        todo = await self._work()
        if todo is None:
            return
        machine = await asyncio.to_thread(work.machine_of, self._record, todo, self._parts_uri)
        self._machine = machine
        now = self._clock.monotonic()
        self._outputs = JobOutputs(self._record, todo, self._parts_uri, self._settings)
        objects = {one.number: one for one in todo.objects}
        self._calls = SpanCalls(
            self._plane, self._record, objects, self._parts_uri, self._settings,
            began=todo.began, hosted=deployment_name(self.spec.job),
        )  # fmt: skip
        self.tally.begin(todo, now=now)
        self._inbox = asyncio.Queue()
        self._looks = False
        if machine.waiting and not self._stopping:
            count = min(instances_max(self.spec, self._plane), machine.waiting)
            self.capacity.ask(count, self._changed, self._on_event)
            self._changed()
        await self._carry_out(machine, machine.begin(now=now))
        if self._stopping:
            await self._carry_out(machine, machine.stop(now=now))
        await self._loop(machine)

    async def _work(self) -> work.JobWork | None:
        """None: there is no work, and the job has ended."""
        record, database = self._record, self._plane.database
        if record.span_bytes:
            return await work.take_up(record, database, self._parts_uri)
        attempts = 0
        while not self._stopping:
            try:
                begun = await work.begin(record, database, self._settings, now=self._clock.wall())
                self._stuck.over(_LISTING)
                return begun
            except PenstockError as error:
                pause_s: float | None = None
                if is_storage(error):
                    pause_s = self._pause_s(_LISTING, error)
                else:
                    attempts += 1
                    if attempts < _LISTING_ATTEMPTS_MAX:
                        pause_s = _LISTING_RETRY.pause_s(attempts)
                if isinstance(error, CallerError) or pause_s is None:
                    await self._end(EndJob(FAILED, reason_of(error), "input-wrong"))
                    return None
                await asyncio.sleep(pause_s)
        self._stuck.over(_LISTING)
        await self._end(EndJob(STOPPED, "", "stop-asked"))
        return None

    def _pause_s(self, what: str, error: PenstockError) -> float | None:
        """Seconds until the next attempt; None: the job has waited for the disk or store long
        enough."""
        now = self._clock.monotonic()
        due = self._stuck.failed(what, reason_of(error), full=False, now=now)
        return None if due is None else due - now

    async def _loop(self, machine: TransformJob) -> None:
        kept_at = self._clock.monotonic()
        while not machine.ended:
            told = await self._next(machine)
            await self._carry_out(machine, told(machine))
            self.capacity.count()
            if self._clock.monotonic() >= kept_at + _KEPT_EVERY_S:
                kept_at = self._clock.monotonic()
                await self._put(transactions.set_totals, self.totals())

    async def _next(self, machine: TransformJob) -> _Told:
        """The next event; the passing of time, if nothing else happens."""
        now = self._clock.monotonic()
        deadline = machine.next_deadline()
        until = now + _TICK_S if deadline is None else min(deadline, now + _TICK_S)
        try:
            async with asyncio.timeout(max(until - now, 0.0)):
                return await self._inbox.get()
        except TimeoutError:
            return lambda one: one.on_timer(now=self._clock.monotonic())

    # Events

    def _tell(self, told: _Told) -> None:
        self._inbox.put_nowait(told)

    def _changed(self) -> None:
        """Something has changed in its capacity."""
        if not self._looks:
            self._looks = True
            self._tell(self._look)

    def _look(self, machine: TransformJob) -> list[Action]:
        self._looks = False
        now = self._clock.monotonic()
        copies, verdict = self.capacity.look()
        self._spans.copies = {one.copy: one.instance_id for one in copies}
        if verdict.outcome == HOPELESS:
            return machine.hopeless(verdict.message, now=now)
        return machine.copies([one.copy for one in copies], now=now)

    def _on_event(self, event: dict[str, Any]) -> None:
        self.tally.under_way(event, now=self._clock.monotonic())

    # Actions

    async def _carry_out(self, machine: TransformJob, actions: list[Action]) -> None:
        name = self._record.name
        for action in actions:
            _log.debug("transform job %s: %s", name, action)
            match action:
                case RunSpan():
                    self._begin(self._run_span(action))
                case StopSpans():
                    self._begin(self._spans.stop())
                case AssembleObject(object=number):
                    self._begin(self._assemble(number))
                case FailObject(object=number, message=message, reason=reason):
                    _log.info("transform job %s: %s (%s)", name, message, reason)
                    await self._put(transactions.set_object, number, failure=message)
                case KeepCase(object=number, span=span, case=found):
                    if found.refused:
                        _log.info(
                            "transform job %s: records %s of span %d of object %d end instances",
                            name, [one for one, _ in found.refused], span, number,
                        )  # fmt: skip
                    await self._put(transactions.keep_case, number, span, found)
                case ReleaseCapacity():
                    self.capacity.count()
                    self.capacity.release()
                case EndJob():
                    await self._end(action)

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell(lambda machine: _raise(error))  # makes the run begin again

    async def _run_span(self, action: RunSpan) -> None:
        span, key = action.span, (action.span.object, action.span.number)
        result = await self._spans.run(action.copy, span, action.case)
        now = self._clock.monotonic()
        if isinstance(result, NotDone):
            why = result
            self.tally.not_done(key, now=now)
            # A copy that has just gone must not get the next span.
            self._tell(self._look)
            self._tell(lambda machine: machine.not_done(span, why, now=self._clock.monotonic()))
            return
        if result is None:
            self.tally.not_done(key, now=now)
            self._tell(lambda machine: machine.passed(span, now=self._clock.monotonic()))
            return
        done = result
        await self._put(transactions.add_spans, [done])
        self.tally.done(done, now=now)
        refusal = ""
        if done.refused:
            self._put_together.refused(*key)
            refusal = await asyncio.to_thread(first_refusal, self._parts_uri, span)
        self._tell(lambda machine: machine.done(span, done, refusal, now=self._clock.monotonic()))

    @property
    def _spans(self) -> SpanCalls:
        assert self._calls is not None, "nothing is done before the work is known"
        return self._calls

    @property
    def _put_together(self) -> JobOutputs:
        assert self._outputs is not None, "nothing is done before the work is known"
        return self._outputs

    async def _assemble(self, number: int) -> None:
        why = await self._put_together.assemble(number)
        if why is not None:
            told = why
            self._tell(
                lambda machine: machine.not_assembled(number, told, now=self._clock.monotonic())
            )
            return
        await self._put(transactions.set_object, number, assembled=True)
        self._tell(lambda machine: machine.assembled(number, now=self._clock.monotonic()))

    async def _end(self, action: EndJob) -> None:
        self.capacity.count()
        self.capacity.release()
        name = self._record.name
        _log.info(
            "transform job %s: %s (%s) %s", name, action.status, action.reason, action.message
        )
        if self._outputs is not None:
            await self._finish(self._outputs)
        await self._put(
            transactions.end,
            action.status,
            reason=action.message,
            totals=self.totals(),
            now=self._clock.wall(),
        )
        self._outcome = action.status

    async def _put(
        self, write: Callable[Concatenate[Store, str, P], None], *args: P.args, **more: P.kwargs
    ) -> None:
        """Writes to the job's record. What could be written ends the wait for it; what could be
        read does not, since a full disk is still read."""
        await self._plane.database.call(write, self._record.name, *args, **more)
        self._stuck.over(_RECORD)

    async def _finish(self, outputs: JobOutputs) -> None:
        """The report of refused records waits for its disk or store, except where the job is
        stopped."""
        while (error := await outputs.finish()) is not None:
            pause_s = self._pause_s(_ENDING, error)
            if pause_s is None or self._stopping:
                await outputs.give_up()
                break
            await asyncio.sleep(pause_s)
        self._stuck.over(_ENDING)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def waits(self) -> str:
        """Why the job computes nothing now; empty: it computes."""
        return self.capacity.waits(again=self._again, listed=self._calls is not None)

    def totals(self) -> JobTotals:
        return self.tally.totals(instance_s=self.capacity.instance_s, cost=self.capacity.cost)


def _raise(error: BaseException) -> list[Action]:
    raise error
