"""The driver of `core/jobs/schedules`: waits for due times and creates their jobs.

A run is recorded before its job is created, and the job's name is derived from the schedule and the
due time. So a kill before the record leaves the due time due. A kill after it leaves a run that the
next start begins again; if its job exists already, the job belongs to this run.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.clock import Clock
from penstock.control.loop import DriverLoop
from penstock.control.store.store_thread import StoreThread
from penstock.core.jobs import schedules
from penstock.core.timetable.cron import CronError
from penstock.errors import NotNowError, PenstockError
from penstock.jobs.schedules import book
from penstock.jobs.schedules.records import (
    COMPLETED,
    FAILED,
    OPEN,
    PASSED_OVER,
    RUNNING,
    STARTING,
    STOPPED,
    RunRecord,
    ScheduleRecord,
)
from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.catalogue.prometheus_families import Row
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.item_failures import apart

_log = logging.getLogger(__name__)

_LOOP: Final = "schedules"  #: the name of this loop in the count of failures
#: How often the status of runs that have not ended is read.
LOOK_EVERY_S: Final = 1.0
#: The longest sleep: a wall clock may be set, and a machine that was suspended doesn't know for how
#: long.
SLEEP_S_MAX: Final = 20.0

#: TransformJobStatus -> the outcome of its run.
_ENDS: Final = {"Completed": COMPLETED, "Failed": FAILED, "Stopped": STOPPED}


class ControlPlaneCall(Protocol):
    """Calls the SageMaker control plane; raises CallerError as a client would see it."""

    async def __call__(
        self, operation: str, members: dict[str, Any], *, owner: str = ""
    ) -> dict[str, Any]:
        """`owner`: id of the key that makes the call; empty: none."""


class SchedulesDriver:
    """All schedules of one server. `start`, then `close`; tests call `tick` instead."""

    def __init__(
        self,
        *,
        database: StoreThread,
        call: ControlPlaneCall,
        clock: Clock,
        counts: WorkCounts,
        places: NamedPlaces,
    ) -> None:
        """`places`: checks what a job of a new schedule names."""
        self._counts = counts
        self._places = places
        self._database = database
        self._call = call
        self.clock = clock
        loop = DriverLoop("schedules", self.tick, fault="schedules", retry_s=LOOK_EVERY_S)
        #: `start` resumes the schedules on record, and the runs that had not ended
        self.start, self.close = loop.start, loop.close
        self._changed = loop.wake

    # The front door's operations. All raise CallerError as `book` does

    async def create(self, record: ScheduleRecord) -> ScheduleRecord:
        """Also raises what DescribeModel raises for a missing model, and what `NamedPlaces.check`
        raises for its job."""
        await self._places.check(record.job)
        checked = book.checked(record, now=self.clock.wall())
        await self._call("DescribeModel", {"ModelName": str(record.job.get("ModelName", ""))})
        await self._database.call(book.create, checked)
        self._changed()
        return checked

    async def all(self) -> list[ScheduleRecord]:
        return await self._database.call(book.list_)

    async def describe(self, name: str, runs: int) -> tuple[ScheduleRecord, list[RunRecord]]:
        return await self._database.call(book.describe, name, runs)

    async def delete(self, name: str) -> None:
        await self._database.call(book.delete, name)
        self._changed()

    async def pause(self, name: str) -> None:
        await self._database.call(book.pause, name)
        self._changed()

    async def resume(self, name: str) -> None:
        await self._database.call(book.resume, name, now=self.clock.wall())
        self._changed()

    async def run_now(self, name: str) -> RunRecord:
        run = await self._database.call(book.run_now, name, now=self.clock.wall())
        self._changed()
        return run

    # The loop

    async def tick(self) -> float:
        """One look at everything; returns the seconds until the next one."""
        records, runs = await self._database.call(book.open_work)
        await self._follow_all(records, runs)
        now = self.clock.wall()
        began = False
        for record in records:
            if record.due is not None and now >= record.due:
                with apart(_LOOP, record.name, but=(NotNowError,)):
                    began |= await self._decide(record)
        records, runs = await self._database.call(book.open_work)
        if began:
            await self._follow_all(records, [one for one in runs if one.state == STARTING])
        self._tell(records, await self._database.call(book.last_ends))
        return self._sleep_s(records, bool(runs))

    async def _decide(self, record: ScheduleRecord) -> bool:
        """Whether there is a run to begin. Raises `CronError` for a time zone that this machine no
        longer knows."""
        if record.unreadable:
            return False
        decision = await self._database.call(book.decide, record.name, now=self.clock.wall())
        actions = decision.actions if decision is not None else ()
        for action in actions:
            _log.info("schedule %s: %s", record.name, action)
            if isinstance(action, schedules.PassOver):
                self._counts.count(catalogue.RUNS_ENDED, record.name, PASSED_OVER)
        return bool(actions)

    async def _follow_all(self, records: list[ScheduleRecord], runs: list[RunRecord]) -> None:
        by_key = {record.key: record for record in records}
        for run in runs:
            with apart(_LOOP, run.schedule_key, but=(NotNowError,)):
                await self._follow(by_key[run.schedule_key], run)

    async def _follow(self, record: ScheduleRecord, run: RunRecord) -> None:
        if run.state == STARTING:
            await self._begin(record, run)
        else:
            await self._look(record, run)

    async def _begin(self, record: ScheduleRecord, run: RunRecord) -> None:
        try:
            job = schedules.job_of(record.job, record.name, run.due, record.zone())
            await self._call("CreateTransformJob", job, owner=record.owner)
        except CronError as error:
            await self._settle(record, run, FAILED, message=str(error))
            return
        except PenstockError as error:
            judged = schedules.judge_start(
                error.code,
                is_there=await self._is_there(run),
                begun=run.begun,
                now=self.clock.wall(),
            )
            message = "" if judged == RUNNING else f"{error.code}: {error.message}"
            await self._settle(record, run, judged, message=message)
            return
        await self._settle(record, run, RUNNING)

    async def _is_there(self, run: RunRecord) -> bool:
        """Whether the run had begun before a kill: then its job exists, whatever Create answers
        now."""
        try:
            await self._call("DescribeTransformJob", {"TransformJobName": run.job})
        except PenstockError:
            return False
        return True

    async def _look(self, record: ScheduleRecord, run: RunRecord) -> None:
        try:
            described = await self._call("DescribeTransformJob", {"TransformJobName": run.job})
        except PenstockError as error:
            _log.warning("job %s: %s: %s", run.job, error.code, error.message)
            return
        state = _ENDS.get(described.get("TransformJobStatus", ""))
        if state is not None:
            await self._settle(record, run, state, message=described.get("FailureReason", ""))

    async def _settle(
        self, record: ScheduleRecord, run: RunRecord, state: str, *, message: str = ""
    ) -> None:
        ended = None if state in OPEN else self.clock.wall()
        if (state, message) != (run.state, run.message):
            await self._database.call(book.settle, run, state, message=message, ended=ended)
            if ended is not None:
                self._counts.count(catalogue.RUNS_ENDED, record.name, state)

    def _tell(self, records: list[ScheduleRecord], ends: dict[tuple[str, str], float]) -> None:
        """Updates the metrics of schedules. `ends`: as `book.last_ends` gives them."""
        names = {record.key: record.name for record in records}
        failing = [
            ((name,), float(ends.get((key, FAILED), 0.0) > ends.get((key, COMPLETED), 0.0)))
            for key, name in names.items()
        ]
        succeeded = [
            ((names[key],), ended)
            for (key, state), ended in ends.items()
            if state == COMPLETED and key in names
        ]
        due = {record.name: None if record.paused else record.due for record in records}
        counts = self._counts
        counts.gauge(catalogue.SCHEDULE_FAILING, failing)
        counts.gauge(catalogue.SCHEDULE_SUCCESS, succeeded)
        counts.gauge_from(catalogue.SCHEDULE_OVERDUE, lambda: self._overdue(due))
        counts.keep(catalogue.RUNS_ENDED, due, catalogue.RUN_ENDS, self.clock.wall())

    def _overdue(self, due: dict[str, float | None]) -> list[Row]:
        now = self.clock.wall()
        return [((name,), max(0.0, now - (now if at is None else at))) for name, at in due.items()]

    def _sleep_s(self, records: list[ScheduleRecord], open_runs: bool) -> float:
        now = self.clock.wall()
        looks = [_next_look(record) for record in records if not record.paused]
        sleeps = [max(0.0, look - now) for look in looks if look is not None]
        return min((*sleeps, LOOK_EVERY_S if open_runs else SLEEP_S_MAX, SLEEP_S_MAX))


def _next_look(record: ScheduleRecord) -> float | None:
    with apart(_LOOP, record.name):
        return schedules.next_look(record.spec(), record.seen())
    return None
