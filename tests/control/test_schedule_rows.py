"""Schedules on record: what each transaction leaves, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.store.store import Store
from penstock.jobs.schedules import book, rows
from penstock.jobs.schedules.records import (
    COMPLETED,
    RUNNING,
    STARTING,
    NoSuchJobSchedule,
    RunRecord,
    ScheduleBusy,
    ScheduleExists,
    ScheduleRecord,
)

HOUR = 3600.0
#: Everything but its defaults.
GIVEN = ScheduleRecord(
    name="Nightly",
    expression="rate(1 hour)",
    timezone="Europe/Berlin",
    missed="run-all",
    overlap=True,
    starts=HOUR,
    ends=100 * HOUR,
    job={"ModelName": "m", "TransformOutput": {"S3OutputPath": "s3://o/{date}"}},
    created=1.0,
    due=2 * HOUR,
)


def due_of(store: Store) -> float | None:
    return book.describe(store, "nightly", 1)[0].due


def test_what_is_given_is_read_again(store: Store) -> None:
    book.create(store, GIVEN)
    book.create(store, replace(GIVEN, name="also"))
    assert book.describe(store, "NIGHTLY", 1) == (GIVEN, [])
    assert [one.name for one in book.list_(store)] == ["also", "Nightly"]
    with pytest.raises(ScheduleExists):
        book.create(store, replace(GIVEN, name="nightlY"))


def test_a_decision_is_written_whole(store: Store) -> None:
    book.create(store, GIVEN)
    book.decide(store, "Nightly", now=4 * HOUR)
    record, runs = book.describe(store, "nightly", 10)
    assert (record.due, record.open_runs) == (5 * HOUR, 3)
    assert [(run.job, run.state, run.reason) for run in runs] == [
        ("Nightly-19700101T040000Z", STARTING, "on-time"),
        ("Nightly-19700101T030000Z", STARTING, "made-up"),
        ("Nightly-19700101T020000Z", STARTING, "made-up"),
    ]
    assert book.open_work(store)[1] == runs[::-1]
    assert book.decide(store, "Nightly", now=4 * HOUR + 1).actions == ()  # type: ignore[union-attr]
    assert len(book.describe(store, "nightly", 10)[1]) == 3


def test_a_due_time_has_one_run(store: Store) -> None:
    """Somebody who asks for a run in the very second that it is due gets that one."""
    book.create(store, GIVEN)
    asked = book.run_now(store, "nightly", now=2 * HOUR)
    book.decide(store, "Nightly", now=2 * HOUR)
    assert book.describe(store, "nightly", 10)[1] == [asked]


def test_a_run_that_lasts_keeps_another_away(store: Store) -> None:
    book.create(store, replace(GIVEN, overlap=False))
    run = book.run_now(store, "nightly", now=1.5 * HOUR)
    with pytest.raises(ScheduleBusy):
        book.run_now(store, "nightly", now=1.6 * HOUR)
    book.settle(store, run, RUNNING)
    with pytest.raises(ScheduleBusy):
        book.run_now(store, "nightly", now=1.6 * HOUR)
    book.settle(store, run, COMPLETED, message="m", ended=1.7 * HOUR)
    ended = replace(run, state=COMPLETED, message="m", ended=1.7 * HOUR)
    assert book.describe(store, "nightly", 1)[1] == [ended]
    book.run_now(store, "nightly", now=1.8 * HOUR)


def test_paused_it_is_not_due_and_resumed_from_then_on(store: Store) -> None:
    book.create(store, GIVEN)
    book.pause(store, "nightly")
    assert due_of(store) is None
    assert book.decide(store, "Nightly", now=4 * HOUR) is None
    book.resume(store, "nightly", now=4.5 * HOUR)
    assert due_of(store) == 5 * HOUR
    book.resume(store, "nightly", now=40 * HOUR)  # it is resumed already
    assert due_of(store) == 5 * HOUR


def test_what_is_deleted_is_gone_with_its_runs(store: Store) -> None:
    book.create(store, GIVEN)
    book.run_now(store, "nightly", now=HOUR)
    book.delete(store, "nightly")
    assert book.open_work(store) == ([], [])
    assert book.decide(store, "Nightly", now=4 * HOUR) is None
    with pytest.raises(NoSuchJobSchedule):
        book.delete(store, "nightly")
    book.create(store, GIVEN)
    assert book.describe(store, "nightly", 1)[1] == []


def test_old_runs_go_and_those_that_last_stay(store: Store) -> None:
    book.create(store, GIVEN)
    made = [
        RunRecord(
            schedule_key="nightly",
            due=float(at),
            last=float(at),
            job=f"j{at}",
            state=STARTING if at == 3 else COMPLETED,
            reason="on-time",
            begun=0.0,
        )
        for at in range(rows.RUNS_KEPT + 10)
    ]
    with store.begin() as db:
        rows.add_runs(db, made)
    kept = [run.job for run in book.describe(store, "nightly", 1000)[1]]
    assert kept == [run.job for run in made[:9:-1]] + ["j3"]
