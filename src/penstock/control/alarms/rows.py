"""Alarms as rows.

The functions work in an open transaction, so a scaling policy and its alarms are written together.
Every change increments one number, the revision. Whoever evaluates alarms reads that number to see
that something changed, and then reads only the changed rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, bindparam, delete, func, insert, select, update

from penstock.control.alarms import history, tags
from penstock.control.alarms.records import (
    AlarmActions,
    AlarmQuery,
    AlarmRecord,
    HistoryItem,
    unreadable_alarm,
)
from penstock.control.database import schema
from penstock.control.database.mapping import from_json, record_of, values_of
from penstock.core.alarms.spec import AlarmSpec
from penstock.metrics import item_failures


def _spec(text: str) -> AlarmSpec:
    """Raises ValueError for text that is no spec."""
    spec = from_json(AlarmSpec, text)
    counts = (spec.period_s, spec.evaluation_periods, spec.datapoints_to_alarm)
    if min(counts) <= 0:
        raise ValueError(f"periods of {counts}")
    if sum(query.return_data for query in spec.queries) != 1:
        raise ValueError("not one of its queries returns data")
    return spec


_REVISION: Final = "alarms_revision"
#: Columns that enabling or disabling actions writes; other columns stay, readable or not.
_SWITCHED: Final = ("actions_enabled", "configuration_updated", "revision")
_NAMES_PER_SELECT: Final = 500  #: a statement may have only so many bound parameters


def put(db: Connection, record: AlarmRecord, *, now: float) -> AlarmRecord:
    """Creates an alarm, or replaces the definition of the one with its name. Returns it as stored.

    A new alarm gets the state of `record`; an existing one keeps its state, reason and time.
    """
    before = get(db, record.name)
    kept = replace(
        record,
        state_updated=now,
        configuration_updated=now,
        revision=_next_revision(db),
    )
    if before is not None:
        kept = replace(
            kept,
            state=before.state,
            state_reason=before.state_reason,
            state_reason_data=before.state_reason_data,
            state_updated=before.state_updated,
        )
        db.execute(delete(schema.alarms).where(schema.alarms.c.name == record.name))
    db.execute(insert(schema.alarms).values(**_values(kept)))
    history.add(db, [history.configured(kept, before, now=now)])
    return kept


def remove(db: Connection, names: Collection[str], *, now: float) -> list[str]:
    """Deletes the alarms that exist, with their tags; returns their names. Their history stays."""
    found = find(db, names)
    for record in found:
        db.execute(delete(schema.alarms).where(schema.alarms.c.name == record.name))
        tags.remove(db, record.arn)
    history.add(db, [history.deleted(record, now=now) for record in found])
    if found:
        _next_revision(db)
    return [record.name for record in found]


def get(db: Connection, name: str) -> AlarmRecord | None:
    row = db.execute(select(schema.alarms).where(schema.alarms.c.name == name)).mappings().first()
    return None if row is None else _record(row)


def count(db: Connection) -> int:
    return int(db.scalar(select(func.count()).select_from(schema.alarms)) or 0)


def find(db: Connection, names: Iterable[str]) -> list[AlarmRecord]:
    """The alarms with these names that exist, in the order of names."""
    found = []
    for some in _in_parts(sorted(set(names))):
        rows_found = db.execute(select(schema.alarms).where(schema.alarms.c.name.in_(some)))
        found += [_record(row) for row in rows_found.mappings()]
    return sorted(found, key=lambda record: record.name)


def find_owned(db: Connection, owner: str) -> list[AlarmRecord]:
    """The alarms that a policy made, in the order of names."""
    columns = schema.alarms.c
    found = db.execute(select(schema.alarms).where(columns.owner == owner).order_by(columns.name))
    return [_record(row) for row in found.mappings()]


def listed(db: Connection, query: AlarmQuery) -> list[AlarmRecord]:
    """Alarms that pass all filters of the query."""
    columns = schema.alarms.c
    wanted = select(schema.alarms).where(columns.name > query.after).order_by(columns.name)
    if query.names:
        wanted = wanted.where(columns.name.in_(query.names))
    if query.state:
        wanted = wanted.where(columns.state == query.state)
    found = []
    for row in db.execute(wanted).mappings():
        # LIKE ignores case in SQLite, so it can't be used.
        if not row["name"].startswith(query.prefix):
            continue
        record = _record(row)
        actions = (*record.actions.ok, *record.actions.alarm, *record.actions.insufficient_data)
        if query.action_prefix and not any(one.startswith(query.action_prefix) for one in actions):
            continue
        found.append(record)
        if len(found) == query.limit:
            break
    return found


def set_state(db: Connection, record: AlarmRecord, items: Iterable[HistoryItem]) -> AlarmRecord:
    """Writes the state of `record`, and `items` to the history.

    Raises `AlarmChanged` if the alarm was changed or deleted since `record` was read.
    """
    (kept,) = set_states(db, [record])
    if kept is None:
        raise AlarmChanged(record.name)
    history.add(db, items)
    return kept


def set_states(db: Connection, records: Sequence[AlarmRecord]) -> list[AlarmRecord | None]:
    """As `set_state` for many alarms, without history. None for each that was changed or
    deleted."""
    columns = schema.alarms.c
    current: dict[str, int] = {}
    for some in _in_parts([record.name for record in records]):
        found = select(columns.name, columns.revision).where(columns.name.in_(some))
        current |= {name: number for name, number in db.execute(found.with_for_update())}
    number = _next_revision(db)
    kept = [
        replace(record, revision=number) if current.get(record.name) == record.revision else None
        for record in records
    ]
    written = [
        {
            "of": record.name,
            "state": record.state,
            "state_reason": record.state_reason,
            "state_reason_data": record.state_reason_data,
            "state_updated": record.state_updated,
            "revision": record.revision,
        }
        for record in kept
        if record is not None
    ]
    if written:
        db.execute(update(schema.alarms).where(columns.name == bindparam("of")), written)
    return kept


def enable_actions(db: Connection, names: Iterable[str], *, enabled: bool, now: float) -> None:
    """Names of no alarm are ignored, as in CloudWatch."""
    for record in find(db, names):
        if record.actions_enabled == enabled:
            continue
        kept = replace(
            record,
            actions_enabled=enabled,
            configuration_updated=now,
            revision=_next_revision(db),
        )
        values = _values(kept)
        changed = {name: values[name] for name in _SWITCHED}
        db.execute(
            update(schema.alarms).where(schema.alarms.c.name == record.name).values(**changed)
        )
        history.add(db, [history.configured(kept, record, now=now)])


def revision(db: Connection) -> int:
    """The number of changes so far."""
    columns = schema.settings.c
    return int(db.scalar(select(columns.value).where(columns.name == _REVISION)) or 0)


def changed_since(db: Connection, seen: int) -> tuple[list[AlarmRecord], set[str]]:
    """The alarms whose revision is above `seen`, and the names of all alarms."""
    columns = schema.alarms.c
    found = db.execute(select(schema.alarms).where(columns.revision > seen).order_by(columns.name))
    names = {name for (name,) in db.execute(select(columns.name))}
    return [_record(row) for row in found.mappings()], names


class AlarmChanged(Exception):
    """The alarm changed since it was read; nothing was written."""


def _in_parts(names: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(names), _NAMES_PER_SELECT):
        yield names[first : first + _NAMES_PER_SELECT]


def _next_revision(db: Connection) -> int:
    number = revision(db) + 1
    columns = schema.settings.c
    done = db.execute(
        update(schema.settings).where(columns.name == _REVISION).values(value=str(number))
    )
    if not done.rowcount:
        db.execute(insert(schema.settings).values(name=_REVISION, value=str(number)))
    return number


def _values(record: AlarmRecord) -> dict[str, Any]:
    return values_of(schema.alarms, record, omitted=",".join(record.omitted))


def _record(row: RowMapping) -> AlarmRecord:
    """A row that can't be read becomes an alarm that watches nothing and says why. It can be
    listed, deleted and replaced, and affects no other alarm."""
    columns = ("arn", "owner", "state_updated", "configuration_updated", "revision")
    common = {name: row[name] for name in columns} | {
        "actions_enabled": bool(row["actions_enabled"]),
        "omitted": tuple(name for name in row["omitted"].split(",") if name),
    }
    try:
        return record_of(
            AlarmRecord,
            row,
            spec=_spec(row["spec"]),
            actions=from_json(AlarmActions, row["actions"]),
            **common,
        )
    except item_failures.UNREADABLE as error:
        item_failures.note("alarm-rows", row["name"], error)
        return unreadable_alarm(row["name"], str(error), **common)
