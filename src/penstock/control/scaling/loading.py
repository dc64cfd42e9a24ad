"""All targets with what the machine of each has to know, read in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from penstock.control.scaling import activity_rows, rows
from penstock.control.scaling.records import ScheduledActionRecord, TargetRecord
from penstock.control.scaling.resources import CapacitySeen
from penstock.control.scaling.writing import Resources, seen
from penstock.control.store import rows as resource_rows
from penstock.control.store.store import Store
from penstock.control.zones import zone_of
from penstock.core.scaling.cooldown import Scaled
from penstock.core.scaling.schedule import ScheduledAction
from penstock.core.scaling.spec import ScalingSpec
from penstock.core.timetable.timetable import Timetable, parse
from penstock.metrics.item_failures import apart, readable

LOOP: Final = "scaling"  #: in the count of failures
#: The tag of a scalable target that switches its fast path on.
FAST_TAG: Final = "penstock:fast-scaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoaded:
    record: TargetRecord
    spec: ScalingSpec
    schedules: tuple[tuple[ScheduledAction, float], ...]  #: with when each is due
    last: Scaled | None
    open_activity: str


def load_targets(store: Store, *, fast: bool, cooldown_s_max: float) -> list[TargetLoaded]:
    """`fast`: every target has the fast path; longer cooldowns count as `cooldown_s_max`."""
    with store.read() as db:
        return readable(
            LOOP,
            rows.all_targets(db),
            lambda record: _loaded(db, record, fast, cooldown_s_max),
            lambda record: record.key,
        )


def counts(store: Store, resources: Resources) -> dict[str, CapacitySeen | None]:
    """The recorded count of every target, by its key; None where what it names is gone."""
    with store.read() as db:
        found = readable(
            LOOP,
            rows.all_targets(db),
            lambda record: (record.key, seen(db, resources, record)),
            lambda record: record.key,
        )
        return dict(found)


def action_of(record: ScheduledActionRecord) -> ScheduledAction:
    """Raises `CronError` for a schedule or a time zone that can't be read."""
    return ScheduledAction(
        name=record.name,
        timetable=Timetable(
            parse(record.schedule, zone_of(record.timezone)),
            since=record.starts if record.starts is not None else record.created,
            until=record.ends,
        ),
        capacity_min=record.capacity_min,
        capacity_max=record.capacity_max,
    )


def _loaded(
    db: Connection, record: TargetRecord, fast: bool, cooldown_s_max: float
) -> TargetLoaded:
    tags = resource_rows.tags_of(db, record.arn)
    fast = fast or tags.get(FAST_TAG, "").lower() == "true"
    last, open_activity = activity_rows.last_change(db, record.key)
    return TargetLoaded(
        record=record,
        spec=ScalingSpec(
            target=replace(record.spec, fast=fast),
            policies=tuple(
                one.policy for one in rows.policies(db, record.key) if not one.unreadable
            ),
        ).with_cooldowns_up_to(cooldown_s_max),
        schedules=tuple(_schedules(rows.schedules(db, record.key))),
        last=last,
        open_activity=open_activity,
    )


def _schedules(records: list[ScheduledActionRecord]) -> list[tuple[ScheduledAction, float]]:
    found = []
    for record in records:
        if record.due is None:
            continue
        # A zone that this machine no longer knows costs its own schedule.
        with apart(LOOP, f"{record.resource_id} {record.name}"):
            found.append((action_of(record), record.due))
    return found
