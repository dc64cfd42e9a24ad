"""Transactions on schedules. Each is atomic: a kill leaves the record as before or as after it."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.store.store import Store, reads, writes
from penstock.core.jobs import schedules
from penstock.core.jobs.schedules import PassOver, ScheduleDecision, StartRun
from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import check_new
from penstock.errors import CallerError
from penstock.jobs.schedules import rows
from penstock.jobs.schedules.records import (
    PASSED_OVER,
    STARTING,
    RunRecord,
    ScheduleBusy,
    ScheduleRecord,
)


def checked(record: ScheduleRecord, *, now: float) -> ScheduleRecord:
    """The record with its first due time.

    Raises CallerError `schedule-invalid`, `schedule-job-invalid`.
    """
    try:
        check_new(record.expression)
        spec, zone = record.spec(), record.zone()
    except CronError as error:
        raise CallerError(
            "schedule-invalid",
            f"{record.expression[:200]!r} in {record.timezone[:64]!r}: {error}",
            hint="cron(0 3 * * ? *), rate(6 hours) or at(2026-03-02T08:00:00), and a zone such as"
            " Europe/Berlin.",
        ) from error
    schedules.check(record.job, record.name, zone)
    due = spec.timetable.next_due(after=now)
    if due is None:
        raise CallerError(
            "schedule-invalid",
            f"{record.expression[:200]!r} is never due from now on",
            hint="Check its day, its year, and its start and end.",
        )
    return replace(record, due=None if record.paused else due)


create = writes(rows.create)
list_ = reads(rows.everything)


def describe(store: Store, name: str, runs: int) -> tuple[ScheduleRecord, list[RunRecord]]:
    """The schedule with its latest runs, latest first. Raises `NoSuchJobSchedule`, as do all
    functions below."""
    with store.read() as db:
        record = rows.require(db, name)
        return record, rows.runs(db, record.key, runs)


def delete(store: Store, name: str) -> None:
    with store.begin() as db:
        rows.remove(db, rows.require(db, name).key)


def pause(store: Store, name: str) -> None:
    """Stops due times from now on, and drops those that wait for a run to end. Idempotent."""
    with store.begin() as db:
        rows.set_paused(db, rows.require(db, name).key, True, None)


def resume(store: Store, name: str, *, now: float) -> None:
    """Due times count again from now on. Idempotent."""
    with store.begin() as db:
        record = rows.require(db, name)
        if record.paused:
            due = record.spec().timetable.next_due(after=now)
            rows.set_paused(db, record.key, False, due)


def run_now(store: Store, name: str, *, now: float) -> RunRecord:
    """Adds a run that is due now. Raises `ScheduleBusy`."""
    with store.begin() as db:
        record = rows.require(db, name)
        start = schedules.run_now(record.spec(), record.seen(), now=now)
        if start is None:
            raise ScheduleBusy(record.name)
        run = _run(record, start, now)
        rows.add_runs(db, [run])
        return run


def open_work(store: Store) -> tuple[list[ScheduleRecord], list[RunRecord]]:
    """All schedules, and the runs that have not ended."""
    with store.read() as db:
        return rows.everything(db), rows.open_runs(db)


last_ends = reads(rows.last_ends)


def decide(store: Store, name: str, *, now: float) -> ScheduleDecision | None:
    """Decides on due times and records the decision, in one transaction. None: the schedule is gone
    or paused."""
    with store.begin() as db:
        record = next((one for one in rows.everything(db) if one.name == name), None)
        if record is None or record.paused:
            return None
        decision = schedules.decide(record.spec(), record.seen(), now=now)
        if decision.actions:
            made = [
                _run(record, action, now)
                if isinstance(action, StartRun)
                else _passed(record, action, now)
                for action in decision.actions
            ]
            rows.add_runs(db, made)
            rows.set_due(db, record.key, decision.due)
        return decision


settle = writes(rows.set_state)  #: records the outcome of a run


def _run(record: ScheduleRecord, start: StartRun, now: float) -> RunRecord:
    job = schedules.job_of(record.job, record.name, start.due, record.zone())
    return RunRecord(
        schedule_key=record.key,
        due=start.due,
        last=start.due,
        job=job["TransformJobName"],
        state=STARTING,
        reason=start.reason,
        begun=now,
    )


def _passed(record: ScheduleRecord, passed: PassOver, now: float) -> RunRecord:
    return RunRecord(
        schedule_key=record.key,
        due=passed.first,
        last=passed.last,
        job="",
        state=PASSED_OVER,
        reason=passed.reason,
        begun=now,
        ended=now,
    )
