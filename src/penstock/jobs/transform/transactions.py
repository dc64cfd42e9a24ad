"""Database reads and writes of transform jobs; each function is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from sqlalchemy import RowMapping, delete, insert, select, update

from penstock.control.database.mapping import from_json, record_of, to_json, values_of
from penstock.control.database.schema import (
    transform_crashes,
    transform_jobs,
    transform_objects,
    transform_spans,
)
from penstock.control.store import paging, rows
from penstock.control.store.records import TRANSFORM_JOB, ListQuery, Page
from penstock.control.store.store import Store
from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.jobs.spec import InputObject, SpanDone, TransformSpec
from penstock.jobs.transform.records import (
    GOING,
    IN_PROGRESS,
    STOPPING,
    JobNotRunning,
    JobRecord,
    JobTotals,
    unreadable_spec,
)
from penstock.metrics import item_failures

_INSERTED_AT_ONCE: Final = 1000


def create(
    store: Store,
    spec: TransformSpec,
    request: Mapping[str, Any],
    *,
    arn: str,
    now: float,
    tags: Mapping[str, str],
) -> None:
    """Adds a job with status InProgress. Raises `AlreadyExists`: no name is used twice."""
    extra = {
        "status": IN_PROGRESS,
        "failure_reason": "",
        "owner": spec.owner,
        "priority": spec.priority,
        "spec": to_json(spec),
        "span_bytes": 0,
        "totals": to_json({}),
    }
    with store.begin() as db:
        rows.create(db, TRANSFORM_JOB, spec.job, request, arn, now, tags, extra)


def describe(store: Store, name: str) -> JobRecord:
    """Raises `NotFound`."""
    with store.read() as db:
        return _record(rows.require(db, TRANSFORM_JOB, name))


def page(store: Store, query: ListQuery) -> Page[JobRecord]:
    """Raises `InvalidToken`."""
    with store.read() as db:
        found = db.execute(paging.filtered(transform_jobs, query)).mappings().all()
        return paging.page(transform_jobs, query, found, _record)


def going(store: Store) -> list[JobRecord]:
    """The jobs that have not ended, oldest first."""
    columns = transform_jobs.c
    with store.read() as db:
        found = db.execute(
            select(transform_jobs)
            .where(columns.status.in_(GOING))
            .order_by(columns.created, columns.key)
        )
        return [_record(row) for row in found.mappings()]


def begin_stop(store: Store, name: str, *, now: float) -> None:
    """Sets the status Stopping; a second call changes nothing. Raises `NotFound`,
    `JobNotRunning`."""
    with store.begin() as db:
        row = rows.require(db, TRANSFORM_JOB, name)
        if row["status"] not in GOING:
            raise JobNotRunning(row["name"], row["status"])
        if row["status"] != STOPPING:
            _write(db, row["key"], status=STOPPING, modified=now)


def begin(
    store: Store,
    name: str,
    objects: Sequence[InputObject],
    *,
    span_bytes: int,
    totals: JobTotals,
    now: float,
) -> None:
    """Records the objects of a job, only once: from now on the job reads these versions."""
    key = name.lower()
    values = [
        values_of(transform_objects, one, job_key=key, object_key=one.key, assembled=0, failure="")
        for one in objects
    ]
    with store.begin() as db:
        db.execute(delete(transform_objects).where(transform_objects.c.job_key == key))
        for at in range(0, len(values), _INSERTED_AT_ONCE):
            db.execute(insert(transform_objects), values[at : at + _INSERTED_AT_ONCE])
        _write(
            db, key, started=now, modified=now, span_bytes=span_bytes,
            totals=to_json(totals),
        )  # fmt: skip


def work_of(
    store: Store, name: str
) -> tuple[list[InputObject], dict[int, str], set[int], list[SpanDone]]:
    """The work of a job that has begun: (objects, those that get no output with the reason, those
    whose output is in its place, completed spans)."""
    key = name.lower()
    with store.read() as db:
        found = db.execute(
            select(transform_objects)
            .where(transform_objects.c.job_key == key)
            .order_by(transform_objects.c.number)
        ).mappings()
        objects, failures, assembled = [], {}, set()
        for row in found:
            objects.append(record_of(InputObject, row, key=row["object_key"]))
            if row["failure"]:
                failures[row["number"]] = row["failure"]
            if row["assembled"]:
                assembled.add(row["number"])
        spans = db.execute(
            select(transform_spans)
            .where(transform_spans.c.job_key == key)
            .order_by(transform_spans.c.object, transform_spans.c.span)
        ).mappings()
        return objects, failures, assembled, [record_of(SpanDone, row) for row in spans]


def add_spans(store: Store, name: str, done: Sequence[SpanDone]) -> None:
    """Records spans whose output is committed. A span on record already stays as it is."""
    key, columns = name.lower(), transform_spans.c
    with store.begin() as db:
        for one in done:
            db.execute(
                delete(transform_spans).where(
                    columns.job_key == key,
                    columns.object == one.object,
                    columns.span == one.span,
                )
            )
            values = values_of(transform_spans, one, job_key=key)
            db.execute(insert(transform_spans).values(**values))


def set_object(
    store: Store, name: str, number: int, *, assembled: bool = False, failure: str = ""
) -> None:
    """Records that an object has its output, or gets none."""
    columns = transform_objects.c
    values: dict[str, Any] = {"assembled": 1} if assembled else {"failure": failure}
    with store.begin() as db:
        db.execute(
            update(transform_objects)
            .where(columns.job_key == name.lower(), columns.number == number)
            .values(**values)
        )


def keep_case(store: Store, name: str, number: int, span: int, case: CrashCase) -> None:
    """Records what is known of the records of a span during which instances ended."""
    key, columns = name.lower(), transform_crashes.c
    of_span = columns.job_key == key, columns.object == number, columns.span == span
    with store.begin() as db:
        db.execute(delete(transform_crashes).where(*of_span))
        values = {"job_key": key, "object": number, "span": span, "crash_case": to_json(case)}
        db.execute(insert(transform_crashes).values(**values))


def cases_of(store: Store, name: str) -> dict[tuple[int, int], CrashCase]:
    """The cases of a job that has begun: (object, span) -> what `keep_case` stored last."""
    with store.read() as db:
        found = db.execute(
            select(transform_crashes).where(transform_crashes.c.job_key == name.lower())
        ).mappings()
        return {
            (row["object"], row["span"]): from_json(CrashCase, row["crash_case"]) for row in found
        }


def set_totals(store: Store, name: str, totals: JobTotals) -> None:
    with store.begin() as db:
        _write(db, name.lower(), totals=to_json(totals))


def end(
    store: Store, name: str, status: str, *, reason: str, totals: JobTotals, now: float
) -> None:
    """The last change of a job: deletes its objects and spans; its totals stay."""
    key = name.lower()
    with store.begin() as db:
        for table in (transform_crashes, transform_spans, transform_objects):
            db.execute(delete(table).where(table.c.job_key == key))
        _write(
            db, key, status=status, failure_reason=reason, ended=now, modified=now,
            totals=to_json(totals),
        )  # fmt: skip


def _write(db: Any, key: str, **values: Any) -> None:
    db.execute(update(transform_jobs).where(transform_jobs.c.key == key).values(**values))


def _record(row: RowMapping) -> JobRecord:
    """A row that can't be read becomes a job that never begins and says why. It can be seen and
    stopped, and other jobs are not affected."""
    unreadable = ""
    try:
        request = dict(orjson.loads(row["request"]))
        spec = msgspec.json.decode(row["spec"], type=TransformSpec)
        totals = from_json(JobTotals, row["totals"])
    except item_failures.UNREADABLE as error:
        item_failures.note("transform-rows", row["name"], error)
        request, spec = {"TransformJobName": row["name"]}, unreadable_spec(row["name"])
        totals, unreadable = JobTotals(), str(error) or type(error).__name__
    return record_of(
        JobRecord, row, request=request, spec=spec, totals=totals, unreadable=unreadable
    )
