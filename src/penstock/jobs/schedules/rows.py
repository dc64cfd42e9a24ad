"""Schedules and runs as database rows: functions that need an open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from penstock.control.database.mapping import record_of, values_of
from penstock.jobs.schedules import records as tables
from penstock.jobs.schedules.records import (
    COMPLETED,
    FAILED,
    OPEN,
    NoSuchJobSchedule,
    RunRecord,
    ScheduleExists,
    ScheduleRecord,
    key_of,
)
from penstock.metrics import item_failures

_schedules = tables.schedules
_runs = tables.schedule_runs
_owners = tables.schedule_owners
#: Schedules with their owners.
_SELECT: Final = select(_schedules, _owners.c.owner).join_from(
    _schedules, _owners, _owners.c.schedule_key == _schedules.c.key, isouter=True
)

#: Runs kept per schedule; older ones that have ended are deleted.
RUNS_KEPT: Final = 200


def create(db: Connection, record: ScheduleRecord) -> None:
    """Raises `ScheduleExists`."""
    if _row(db, record.name) is not None:
        raise ScheduleExists(record.name)
    db.execute(insert(_schedules).values(**values_of(_schedules, record)))
    if record.owner:
        db.execute(insert(_owners).values(schedule_key=record.key, owner=record.owner))


def require(db: Connection, name: str) -> ScheduleRecord:
    """Raises `NoSuchJobSchedule`."""
    row = _row(db, name)
    if row is None:
        raise NoSuchJobSchedule(name)
    return _record(row, open_counts(db).get(row["key"], 0))


def everything(db: Connection) -> list[ScheduleRecord]:
    """All schedules, by name."""
    counts = open_counts(db)
    found = db.execute(_SELECT.order_by(_schedules.c.key)).mappings()
    return [_record(row, counts.get(row["key"], 0)) for row in found]


def set_paused(db: Connection, key: str, paused: bool, due: float | None) -> None:
    db.execute(
        update(_schedules).where(_schedules.c.key == key).values(paused=int(paused), due=due)
    )


def set_due(db: Connection, key: str, due: float | None) -> None:
    db.execute(update(_schedules).where(_schedules.c.key == key).values(due=due))


def remove(db: Connection, key: str) -> None:
    """Deletes a schedule with its runs; their jobs stay."""
    db.execute(delete(_runs).where(_runs.c.schedule_key == key))
    db.execute(delete(_owners).where(_owners.c.schedule_key == key))
    db.execute(delete(_schedules).where(_schedules.c.key == key))


def open_counts(db: Connection) -> dict[str, int]:
    """Schedule -> how many of its runs have not ended."""
    found = db.execute(
        select(_runs.c.schedule_key, func.count())
        .where(_runs.c.state.in_(OPEN))
        .group_by(_runs.c.schedule_key)
    )
    return {key: count for key, count in found}


def open_runs(db: Connection) -> list[RunRecord]:
    """The runs of all schedules that have not ended, in the order of their due times."""
    found = db.execute(
        select(_runs).where(_runs.c.state.in_(OPEN)).order_by(_runs.c.due, _runs.c.schedule_key)
    )
    return [RunRecord(**row) for row in found.mappings()]


def last_ends(db: Connection) -> dict[tuple[str, str], float]:
    """(schedule, completed | failed) -> when its last run with that outcome ended."""
    found = db.execute(
        select(_runs.c.schedule_key, _runs.c.state, func.max(_runs.c.ended))
        .where(_runs.c.state.in_((COMPLETED, FAILED)))
        .group_by(_runs.c.schedule_key, _runs.c.state)
    )
    return {(key, state): ended for key, state, ended in found if ended is not None}


def runs(db: Connection, key: str, count: int) -> list[RunRecord]:
    """The latest runs of one schedule, latest first."""
    found = db.execute(
        select(_runs).where(_runs.c.schedule_key == key).order_by(_runs.c.due.desc()).limit(count)
    )
    return [RunRecord(**row) for row in found.mappings()]


def add_runs(db: Connection, records: Sequence[RunRecord]) -> None:
    """A run that has a row already keeps it: a due time is decided only once."""
    for record in records:
        there = select(_runs.c.due).where(
            _runs.c.schedule_key == record.schedule_key, _runs.c.due == record.due
        )
        if db.execute(there).first() is None:
            db.execute(insert(_runs).values(**values_of(_runs, record)))
    for key in sorted({record.schedule_key for record in records}):
        _forget(db, key)


def set_state(
    db: Connection,
    run: RunRecord,
    state: str,
    *,
    message: str = "",
    ended: float | None = None,
) -> None:
    db.execute(
        update(_runs)
        .where(_runs.c.schedule_key == run.schedule_key, _runs.c.due == run.due)
        .values(state=state, message=message, ended=ended)
    )


def _forget(db: Connection, key: str) -> None:
    oldest = db.execute(
        select(_runs.c.due)
        .where(_runs.c.schedule_key == key)
        .order_by(_runs.c.due.desc())
        .offset(RUNS_KEPT)
        .limit(1)
    ).scalar()
    if oldest is not None:
        db.execute(
            delete(_runs).where(
                _runs.c.schedule_key == key, _runs.c.due <= oldest, _runs.c.state.not_in(OPEN)
            )
        )


def _row(db: Connection, name: str) -> RowMapping | None:
    return db.execute(_SELECT.where(_schedules.c.key == key_of(name))).mappings().first()


def _record(row: RowMapping, open_runs: int) -> ScheduleRecord:
    """A schedule whose job can't be read is shown but never due; the others are not affected."""
    job, unreadable = {}, ""
    try:
        job = dict(orjson.loads(row["job"]))
    except item_failures.UNREADABLE as error:
        item_failures.note("schedule-rows", row["name"], error)
        unreadable = str(error) or type(error).__name__
    return record_of(
        ScheduleRecord,
        row,
        overlap=bool(row["overlap"]),
        job=job,
        paused=bool(row["paused"]),
        owner=row["owner"] or "",
        open_runs=open_runs,
        unreadable=unreadable,
    )
