"""Writes a capacity and its activity in one transaction.

A kill at any moment leaves both or neither: the count is always that of the last written activity,
and no change is applied twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection

from penstock.control.scaling import resources, rows
from penstock.control.scaling.records import (
    ActivityRecord,
    ChangeRecord,
    TargetRecord,
)
from penstock.control.store.store import Store, writes
from penstock.core.scaling import activity
from penstock.core.scaling.actions import RunSchedule, ScalingDecision, SetCapacity, TellNotScaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a change."""

    endpoint: str  #: the endpoint to reconcile; empty: nothing was written
    activity_id: str = ""


NOTHING: Final = Written(endpoint="")


def set_capacity(
    store: Store,
    key: tuple[str, str],
    asked: SetCapacity,
    decision: ScalingDecision | None,
    *,
    activity_id: str,
    now: float,
) -> Written:
    """Writes a count, if the target still exists and its count has not changed meanwhile.

    `key`: resource id and dimension.
    """
    with store.begin() as db:
        target = rows.find_target(db, *key)
        if target is None:
            return NOTHING
        return change(db, target, asked, decision, activity_id=activity_id, now=now)


def change(
    db: Connection,
    target: TargetRecord,
    asked: SetCapacity,
    decision: ScalingDecision | None = None,
    *,
    activity_id: str,
    now: float,
) -> Written:
    """As `set_capacity`, inside a transaction."""
    spec = target.spec
    found = resources.find(db, spec.resource_id, spec.dimension)
    if found is None or not found.scalable or found.capacity != asked.was:
        return NOTHING
    endpoint = resources.put(db, spec.resource_id, spec.dimension, asked.to, now)
    replaced = activity.overridden(spec.dimension, asked.was, asked.to)
    rows.override(db, target.key, replaced, now=now)
    rows.add(
        db,
        ActivityRecord(
            id=activity_id,
            resource_id=spec.resource_id,
            dimension=spec.dimension,
            description=activity.description(spec.dimension, asked.to),
            cause=asked.cause,
            started=now,
            status=activity.IN_PROGRESS,
            message=activity.in_progress(spec.dimension, asked.to),
            details=asked.reason,
            change=ChangeRecord(
                was=asked.was,
                to=asked.to,
                base=asked.base,
                cooldown_s=asked.cooldown_s,
                reason=asked.reason,
                policy=asked.policy,
                decided=decision_json(decision) if decision is not None else {},
            ),
        ),
    )
    return Written(endpoint=endpoint, activity_id=activity_id)


settle = writes(rows.settle)


def tell_not_scaled(
    store: Store, key: tuple[str, str], told: TellNotScaled, *, activity_id: str, now: float
) -> None:
    """Writes an activity that changed nothing, with the reason."""
    resource_id, dimension = key
    with store.begin() as db:
        rows.add(
            db,
            ActivityRecord(
                id=activity_id,
                resource_id=resource_id,
                dimension=dimension,
                description=activity.NOT_SCALED_DESCRIPTION,
                cause=told.cause,
                started=now,
                ended=now,
                status=activity.FAILED,
                message=activity.not_scaled_message(told.not_scaled, told.reason),
                details=told.reason,
                not_scaled=told.not_scaled,
            ),
        )


def run_schedule(
    store: Store,
    key: tuple[str, str],
    ran: RunSchedule,
    *,
    ids: tuple[str, str],
    now: float,
) -> Written:
    """Moves the bounds, records that, brings the count within them, and sets the next due time."""
    resource_id, dimension = key
    with store.begin() as db:
        target = rows.find_target(db, *key)
        if target is None:
            return NOTHING
        rows.set_due(db, target.key, ran.name, ran.next_due)
        if ran.reason == "schedule-suspended":
            return NOTHING
        moves = ran.reason == "schedule-due"
        if moves:
            rows.move_bounds(db, target.key, ran.capacity_min, ran.capacity_max)
        bounds = (ran.capacity_min, ran.capacity_max)
        rows.add(
            db,
            ActivityRecord(
                id=ids[0],
                resource_id=resource_id,
                dimension=dimension,
                description=activity.bounds_description(*bounds),
                cause=activity.schedule_cause(ran.name),
                started=now,
                ended=now,
                status=activity.SUCCESSFUL if moves else activity.FAILED,
                message=activity.bounds_message(*bounds, crossed=not moves),
                details=ran.reason,
            ),
        )
        if ran.scale is None:
            return NOTHING
        return change(db, target, ran.scale, activity_id=ids[1], now=now)


def decision_json(decision: ScalingDecision) -> dict[str, Any]:
    """A decision as `explain` shows it."""
    told = asdict(decision)
    for wish in told["wishes"]:
        del wish["arn"], wish["until"]
    return told
