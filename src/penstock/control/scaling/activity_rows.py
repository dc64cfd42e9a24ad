"""Scaling activities as rows: written with what they tell of, kept for six weeks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import orjson
from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from penstock.control.database import schema
from penstock.control.scaling.records import ActivityRecord, ChangeRecord, target_key
from penstock.control.store.rows import to_json
from penstock.core.scaling.activity import IN_PROGRESS, OVERRIDDEN, SUCCESSFUL, NotScaled
from penstock.core.scaling.cooldown import Scaled
from penstock.metrics.item_failures import readable

#: As long as Application Auto Scaling tells of them.
KEPT_S: Final = 42 * 86_400.0

_table = schema.scaling_activities


def add(db: Connection, record: ActivityRecord) -> None:
    db.execute(
        insert(_table).values(
            id=record.id,
            target_key=target_key(record.resource_id, record.dimension),
            resource_id=record.resource_id,
            dimension=record.dimension,
            description=record.description,
            cause=record.cause,
            started=record.started,
            ended=record.ended,
            status=record.status,
            message=record.message,
            details=record.details,
            not_scaled=_text(record.not_scaled),
            change=_text(record.change),
        )
    )


def settle(db: Connection, activity_id: str, status: str, message: str, *, now: float) -> None:
    """The end of an activity that is under way; one that has ended stays what it is."""
    db.execute(
        update(_table)
        .where(_table.c.id == activity_id, _table.c.status == IN_PROGRESS)
        .values(status=status, message=message, ended=now)
    )


def override(db: Connection, key: str, message: str, *, now: float) -> None:
    """Another one begins: what is under way will not be reached."""
    db.execute(
        update(_table)
        .where(_table.c.target_key == key, _table.c.status == IN_PROGRESS)
        .values(status=OVERRIDDEN, message=message, ended=now)
    )


def last_change(db: Connection, key: str) -> tuple[Scaled | None, str]:
    """The last change of a target that counts for cooldowns, and its id while it is under way."""
    found = (
        db.execute(
            select(_table)
            .where(
                _table.c.target_key == key,
                _table.c.change != "",
                _table.c.status.in_((IN_PROGRESS, SUCCESSFUL)),
            )
            .order_by(_table.c.number.desc())
            .limit(1)
        )
        .mappings()
        .all()
    )
    record = next(iter(readable("scaling-rows", found, _record, lambda row: row["id"])), None)
    if record is None or record.change is None:
        return None, ""
    change = record.change
    was = change.base if change.to > change.was else change.was
    scaled = Scaled(was=was, to=change.to, ended=record.ended, cooldown_s=change.cooldown_s)
    return scaled, record.id if record.status == IN_PROGRESS else ""


def listed(
    db: Connection,
    *,
    resource_id: str = "",
    dimension: str = "",
    not_scaled: bool = False,
    before: int | None = None,
    limit: int,
) -> list[ActivityRecord]:
    """The newest first. `before`: a number, the list goes on behind it."""
    columns = _table.c
    wanted = select(_table).order_by(columns.number.desc()).limit(limit)
    if resource_id and dimension:
        wanted = wanted.where(columns.target_key == target_key(resource_id, dimension))
    elif resource_id:
        wanted = wanted.where(columns.resource_id == resource_id)
    elif dimension:
        wanted = wanted.where(columns.dimension == dimension)
    if not not_scaled:
        wanted = wanted.where(columns.not_scaled == "")
    if before is not None:
        wanted = wanted.where(columns.number < before)
    found = db.execute(wanted).mappings()
    return readable("scaling-rows", found, _record, lambda row: row["id"])


def prune(db: Connection, *, now: float) -> None:
    """Drops what is too old. What is under way is not."""
    db.execute(
        delete(_table).where(_table.c.started < now - KEPT_S, _table.c.status != IN_PROGRESS)
    )


def _text(value: Any) -> str:
    return "" if value is None else to_json(asdict(value))


def _record(row: RowMapping) -> ActivityRecord:
    not_scaled, change = row["not_scaled"], row["change"]
    return ActivityRecord(
        id=row["id"],
        resource_id=row["resource_id"],
        dimension=row["dimension"],
        description=row["description"],
        cause=row["cause"],
        started=row["started"],
        ended=row["ended"],
        status=row["status"],
        message=row["message"],
        details=row["details"],
        not_scaled=NotScaled(**orjson.loads(not_scaled)) if not_scaled else None,
        change=ChangeRecord(**orjson.loads(change)) if change else None,
        number=row["number"],
    )
