"""Targets, policies, scheduled actions and activities as rows.

The functions work in an open transaction. An activity is written together with the change that it
records, and is kept for six weeks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson
from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from penstock.control.alarms import rows as alarm_rows
from penstock.control.alarms.records import AlarmQuery
from penstock.control.database import schema
from penstock.control.database.mapping import from_json, record_of, to_json, values_of
from penstock.control.scaling.records import (
    ActivityRecord,
    ChangeRecord,
    NoSuchPolicy,
    NoSuchScheduledAction,
    NoSuchTarget,
    PolicyRecord,
    ScheduledActionRecord,
    TargetRecord,
    target_key,
)
from penstock.core.scaling.activity import IN_PROGRESS, OVERRIDDEN, SUCCESSFUL, NotScaled
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.spec import (
    CHANGE,
    STEP_SCALING,
    Policy,
    ScalableTargetSpec,
    StepPolicy,
    Suspended,
    TrackingPolicy,
)
from penstock.metrics import item_failures
from penstock.metrics.item_failures import readable

_targets = schema.scalable_targets
_policies = schema.scaling_policies
_schedules = schema.scheduled_actions


# Targets


def find_target(db: Connection, resource_id: str, dimension: str) -> TargetRecord | None:
    key = target_key(resource_id, dimension)
    row = db.execute(select(_targets).where(_targets.c.key == key)).mappings().first()
    return None if row is None else _target(row)


def require_target(db: Connection, resource_id: str, dimension: str) -> TargetRecord:
    """Raises `NoSuchTarget`."""
    found = find_target(db, resource_id, dimension)
    if found is None:
        raise NoSuchTarget(resource_id, dimension)
    return found


def all_targets(db: Connection) -> list[TargetRecord]:
    """All targets, in the order of their keys."""
    found = db.execute(select(_targets).order_by(_targets.c.key))
    return [_target(row) for row in found.mappings()]


def put_target(db: Connection, record: TargetRecord) -> None:
    """Creates or replaces."""
    values = values_of(_targets, record.spec) | values_of(_targets, record)
    db.execute(delete(_targets).where(_targets.c.key == record.key))
    db.execute(insert(_targets).values(**values))


def move_bounds(db: Connection, key: str, low: int | None, high: int | None) -> None:
    """None leaves a bound as it is."""
    values = {"capacity_min": low, "capacity_max": high}
    known = {name: value for name, value in values.items() if value is not None}
    if known:
        db.execute(update(_targets).where(_targets.c.key == key).values(**known))


def remove_target(db: Connection, record: TargetRecord, *, now: float) -> None:
    """Deletes a target with its policies, their alarms, its schedules and tags. Activities stay."""
    for policy in policies(db, record.key):
        remove_policy(db, record.key, policy.policy.name, now=now)
    db.execute(delete(_schedules).where(_schedules.c.target_key == record.key))
    db.execute(delete(schema.tags).where(schema.tags.c.arn_key == record.arn.lower()))
    db.execute(delete(_targets).where(_targets.c.key == record.key))


def _target(row: RowMapping) -> TargetRecord:
    spec = record_of(ScalableTargetSpec, row, suspended=_suspended(row))
    return record_of(TargetRecord, row, spec=spec)


def _suspended(row: RowMapping) -> Suspended:
    """If it can't be read, all scaling is suspended: never scale against the owner's will."""
    try:
        return from_json(Suspended, row["suspended"])
    except item_failures.UNREADABLE as error:
        item_failures.note("scaling-rows", row["key"], error)
        return Suspended(scale_in=True, scale_out=True, scheduled=True)


# Policies


def policies(db: Connection, key: str, *, alarms: bool = False) -> list[PolicyRecord]:
    """The policies of one target, by name; with the alarms that trigger each, if asked for."""
    found = db.execute(
        select(_policies, _targets.c.resource_id, _targets.c.dimension)
        .join(_targets, _targets.c.key == _policies.c.target_key)
        .where(_policies.c.target_key == key)
        .order_by(_policies.c.name)
    )
    return [_policy(db, row, alarms=alarms) for row in found.mappings().all()]


def find_policy(db: Connection, key: str, name: str) -> PolicyRecord | None:
    return next((one for one in policies(db, key) if one.policy.name == name), None)


def put_policy(db: Connection, key: str, record: PolicyRecord) -> None:
    """Creates or replaces."""
    name = record.policy.name
    columns = _policies.c
    db.execute(delete(_policies).where(columns.target_key == key, columns.name == name))
    policy = {"name": name, "arn": record.policy.arn, "spec": to_json(record.policy)}
    db.execute(insert(_policies).values(**values_of(_policies, record, target_key=key, **policy)))


def remove_policy(db: Connection, key: str, name: str, *, now: float) -> None:
    """Deletes a policy with the alarms that it created. Raises `NoSuchPolicy`."""
    found = find_policy(db, key, name)
    if found is None:
        raise NoSuchPolicy(name)
    remove_alarms(db, found.policy.arn, now=now)
    columns = _policies.c
    db.execute(delete(_policies).where(columns.target_key == key, columns.name == name))


def remove_alarms(db: Connection, policy_arn: str, *, now: float) -> None:
    """Deletes the alarms that the policy created. Alarms of callers that name the policy stay."""
    owned = alarm_rows.find_owned(db, policy_arn)
    alarm_rows.remove(db, [one.name for one in owned], now=now)


def _policy(db: Connection, row: RowMapping, *, alarms: bool) -> PolicyRecord:
    triggers: Sequence[Any] = (
        alarm_rows.listed(db, AlarmQuery(action_prefix=row["arn"])) if alarms else ()
    )
    policy: Policy
    try:
        is_step, spec = row["kind"] == STEP_SCALING, row["spec"]
        policy = from_json(StepPolicy, spec) if is_step else from_json(TrackingPolicy, spec)
        request, unreadable = dict(orjson.loads(row["request"])), ""
    except item_failures.UNREADABLE as error:
        item_failures.note("scaling-rows", row["arn"], error)
        policy = StepPolicy(name=row["name"], arn=row["arn"], adjustment_type=CHANGE, steps=())
        request, unreadable = {}, str(error) or type(error).__name__
    return record_of(
        PolicyRecord,
        row,
        policy=policy,
        request=request,
        alarms=tuple((one.name, one.arn) for one in triggers),
        unreadable=unreadable,
    )


# Scheduled actions


def schedules(db: Connection, key: str) -> list[ScheduledActionRecord]:
    """The scheduled actions of one target, by name."""
    found = db.execute(
        select(_schedules, _targets.c.resource_id, _targets.c.dimension)
        .join(_targets, _targets.c.key == _schedules.c.target_key)
        .where(_schedules.c.target_key == key)
        .order_by(_schedules.c.name)
    )
    return [record_of(ScheduledActionRecord, row) for row in found.mappings()]


def put_schedule(db: Connection, key: str, record: ScheduledActionRecord) -> None:
    """Creates or replaces."""
    columns = _schedules.c
    db.execute(delete(_schedules).where(columns.target_key == key, columns.name == record.name))
    db.execute(insert(_schedules).values(**values_of(_schedules, record, target_key=key)))


def set_due(db: Connection, key: str, name: str, due: float | None) -> None:
    columns = _schedules.c
    db.execute(
        update(_schedules).where(columns.target_key == key, columns.name == name).values(due=due)
    )


def remove_schedule(db: Connection, key: str, name: str) -> None:
    """Raises `NoSuchScheduledAction`."""
    columns = _schedules.c
    done = db.execute(delete(_schedules).where(columns.target_key == key, columns.name == name))
    if not done.rowcount:
        raise NoSuchScheduledAction(name)


#: Application Auto Scaling keeps activities for as long.
KEPT_S: Final = 42 * 86_400.0

_table = schema.scaling_activities


def add(db: Connection, record: ActivityRecord) -> None:
    changes = {"not_scaled": _text(record.not_scaled), "change": _text(record.change)}
    key = target_key(record.resource_id, record.dimension)
    db.execute(insert(_table).values(**values_of(_table, record, target_key=key, **changes)))


def settle(db: Connection, activity_id: str, status: str, message: str, *, now: float) -> None:
    """Ends an activity that is under way. One that has ended stays as it is."""
    db.execute(
        update(_table)
        .where(_table.c.id == activity_id, _table.c.status == IN_PROGRESS)
        .values(status=status, message=message, ended=now)
    )


def override(db: Connection, key: str, message: str, *, now: float) -> None:
    """Ends the activity under way as overridden: another one begins before it is reached."""
    db.execute(
        update(_table)
        .where(_table.c.target_key == key, _table.c.status == IN_PROGRESS)
        .values(status=OVERRIDDEN, message=message, ended=now)
    )


def last_change(db: Connection, key: str) -> tuple[Scaled | None, str]:
    """The last change of a target that counts for cooldowns, and its activity's id if still
    open."""
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
    """Activities, the newest first; of all dimensions if `dimension` is empty.

    `before`: a number; the list continues after it.
    """
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
    """Deletes old activities, but none that is under way."""
    db.execute(
        delete(_table).where(_table.c.started < now - KEPT_S, _table.c.status != IN_PROGRESS)
    )


def _text(value: Any) -> str:
    return "" if value is None else to_json(value)


def _record(row: RowMapping) -> ActivityRecord:
    not_scaled, change = row["not_scaled"], row["change"]
    return record_of(
        ActivityRecord,
        row,
        not_scaled=from_json(NotScaled, not_scaled) if not_scaled else None,
        change=from_json(ChangeRecord, change) if change else None,
    )
