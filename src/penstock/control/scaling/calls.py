"""The operations of front doors, one transaction each. A policy and the alarms that it creates are
created and deleted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.control.alarms import rows as alarm_rows
from penstock.control.alarms.records import AlarmRecord
from penstock.control.scaling import resources, rows
from penstock.control.scaling.records import (
    BoundsCross,
    PolicyRecord,
    ResourceMissing,
    ScheduledActionRecord,
    TargetRecord,
    TooMany,
)
from penstock.control.scaling.writing import NOTHING, Written, change
from penstock.control.store import rows as resource_rows
from penstock.control.store.store import Store, reads
from penstock.core.scaling import actions
from penstock.core.scaling.spec import ScalableTargetSpec, Suspended

# Application Auto Scaling's quotas for a scalable target.
POLICIES_MAX: Final = 50
SCHEDULES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The members of RegisterScalableTarget; None leaves the stored value."""

    resource_id: str
    dimension: str
    capacity_min: int | None = None
    capacity_max: int | None = None
    role_arn: str | None = None
    suspended: dict[str, bool] | None = None  #: values for members of `Suspended`
    tags: dict[str, str] | None = None


def register(
    store: Store,
    asked: Registration,
    *,
    arn: str,
    role_arn: str,
    activity_id: str,
    now: float,
) -> tuple[TargetRecord, Written]:
    """Creates or updates a target. A count that is outside moved bounds is set to the nearest one.

    `arn` and `role_arn` are used for a new target.

    Raises `ResourceMissing`, `BoundsCross`, and ValueError if a new target lacks a bound.
    """
    with store.begin() as db:
        found = rows.find_target(db, asked.resource_id, asked.dimension)
        seen = resources.find(db, asked.resource_id, asked.dimension)
        if seen is None:
            raise ResourceMissing(asked.resource_id)
        low = asked.capacity_min if found is None else _or(asked.capacity_min, found.spec, "min")
        high = asked.capacity_max if found is None else _or(asked.capacity_max, found.spec, "max")
        if low is None or high is None:
            raise ValueError("a new target needs both bounds")
        if low > high:
            raise BoundsCross(low, high)
        suspended = found.spec.suspended if found is not None else Suspended()
        record = TargetRecord(
            spec=ScalableTargetSpec(
                resource_id=found.spec.resource_id if found is not None else asked.resource_id,
                dimension=asked.dimension,
                capacity_min=low,
                capacity_max=high,
                suspended=replace(suspended, **(asked.suspended or {})),
            ),
            arn=found.arn if found is not None else arn,
            role_arn=asked.role_arn or (found.role_arn if found is not None else role_arn),
            created=found.created if found is not None else now,
        )
        rows.put_target(db, record)
        if asked.tags:
            resource_rows.add_tags(db, record.arn, asked.tags)
        moved = found is None or (found.spec.capacity_min, found.spec.capacity_max) != (low, high)
        scale = actions.within(record.spec, seen.capacity) if moved else None
        if scale is None:
            return record, NOTHING
        return record, change(db, record, scale, activity_id=activity_id, now=now)


def _or(given: int | None, spec: ScalableTargetSpec, which: str) -> int:
    kept = spec.capacity_min if which == "min" else spec.capacity_max
    return kept if given is None else given


def deregister(store: Store, resource_id: str, dimension: str, *, now: float) -> None:
    """Deletes a target with its policies, their alarms and its schedules. Raises `NoSuchTarget`."""
    with store.begin() as db:
        rows.remove_target(db, rows.require_target(db, resource_id, dimension), now=now)


targets = reads(rows.all_targets)


def put_policy(
    store: Store,
    record: PolicyRecord,
    alarms: Sequence[AlarmRecord],
    *,
    now: float,
) -> PolicyRecord:
    """Creates or replaces a policy and the alarms that it creates; a replaced policy keeps its ARN.

    `alarms` name `record.policy.arn` as action and owner.

    Raises `NoSuchTarget`, `TooMany`.
    """
    with store.begin() as db:
        target = rows.require_target(db, record.resource_id, record.dimension)
        before = rows.find_policy(db, target.key, record.policy.name)
        if before is None and len(rows.policies(db, target.key)) >= POLICIES_MAX:
            raise TooMany("scaling policies", POLICIES_MAX)
        if before is not None:
            rows.remove_alarms(db, before.policy.arn, now=now)
            record = replace(record, created=before.created)
        rows.put_policy(db, target.key, record)
        for alarm in alarms:
            alarm_rows.put(db, alarm, now=now)
        found = rows.policies(db, target.key, alarms=True)
        return next(one for one in found if one.policy.name == record.policy.name)


def policy_of(store: Store, resource_id: str, dimension: str, name: str) -> PolicyRecord | None:
    """None if there is no such policy. Raises `NoSuchTarget`."""
    with store.read() as db:
        return rows.find_policy(db, rows.require_target(db, resource_id, dimension).key, name)


def delete_policy(store: Store, resource_id: str, dimension: str, name: str, *, now: float) -> None:
    """Deletes a policy with its alarms. Raises `NoSuchTarget`, `NoSuchPolicy`."""
    with store.begin() as db:
        target = rows.require_target(db, resource_id, dimension)
        rows.remove_policy(db, target.key, name, now=now)


def policies(store: Store) -> list[PolicyRecord]:
    """The policies of all targets, each with the alarms that trigger it."""
    with store.read() as db:
        found = rows.all_targets(db)
        return [one for target in found for one in rows.policies(db, target.key, alarms=True)]


def put_schedule(store: Store, record: ScheduledActionRecord) -> None:
    """Creates or replaces a scheduled action. Raises `NoSuchTarget`, `TooMany`."""
    with store.begin() as db:
        target = rows.require_target(db, record.resource_id, record.dimension)
        present = {one.name: one for one in rows.schedules(db, target.key)}
        before = present.get(record.name)
        if before is None and len(present) >= SCHEDULES_MAX:
            raise TooMany("scheduled actions", SCHEDULES_MAX)
        if before is not None:
            record = replace(record, arn=before.arn, created=before.created)
        rows.put_schedule(db, target.key, record)


def schedule_of(
    store: Store, resource_id: str, dimension: str, name: str
) -> ScheduledActionRecord | None:
    """None if there is no such action. Raises `NoSuchTarget`."""
    with store.read() as db:
        key = rows.require_target(db, resource_id, dimension).key
        return next((one for one in rows.schedules(db, key) if one.name == name), None)


def delete_schedule(store: Store, resource_id: str, dimension: str, name: str) -> None:
    """Raises `NoSuchTarget`, `NoSuchScheduledAction`."""
    with store.begin() as db:
        rows.remove_schedule(db, rows.require_target(db, resource_id, dimension).key, name)


def schedules(store: Store) -> list[ScheduledActionRecord]:
    """The scheduled actions of all targets."""
    with store.read() as db:
        return [one for target in rows.all_targets(db) for one in rows.schedules(db, target.key)]


activities = reads(rows.listed)


def known_arn(store: Store, arn: str) -> bool:
    """Whether a target has this ARN."""
    with store.read() as db:
        return any(one.arn.lower() == arn.lower() for one in rows.all_targets(db))
