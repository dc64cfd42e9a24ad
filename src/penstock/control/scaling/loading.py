"""Reads all targets with all that their machines need, in one transaction, and observes their load.

The load comes from the gateways' counts and the control plane's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from penstock.clock import zone_of
from penstock.control.scaling import rows
from penstock.control.scaling.records import ScheduledActionRecord, TargetRecord
from penstock.control.scaling.resources import CapacityObserved, find
from penstock.control.store import rows as resource_rows
from penstock.control.store.store import Store
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.observed import LoadObserved
from penstock.core.scaling.spec import ScalingSpec, ScheduledAction
from penstock.core.timetable.timetable import Timetable, parse
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.item_failures import apart, readable

LOOP: Final = "scaling"  #: the label of this loop in the count of failures
#: The tag of a scalable target that turns on its fast path.
FAST_TAG: Final = "penstock:fast-scaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoaded:
    record: TargetRecord
    spec: ScalingSpec
    schedules: tuple[tuple[ScheduledAction, float], ...]  #: each with the time when it is due
    last: Scaled | None
    open_activity: str


def load_targets(store: Store, *, fast: bool, cooldown_s_max: float) -> list[TargetLoaded]:
    """`fast`: every target has the fast path; a longer cooldown is cut to `cooldown_s_max`."""
    with store.read() as db:
        return readable(
            LOOP,
            rows.all_targets(db),
            lambda record: _loaded(db, record, fast, cooldown_s_max),
            lambda record: record.key,
        )


#: Target key -> the recorded count; None if its resource is gone.
RecordedCounts = dict[str, CapacityObserved | None]
#: The version of the database that counts were read from.
CountsVersion = tuple[int, int]


def counts_since(
    store: Store, read: CountsVersion | None
) -> tuple[CountsVersion, RecordedCounts | None]:
    """The counts and their version. None instead of them: nothing was written since the version
    `read`, so they are the same."""
    with store.read() as db:
        version = store.version(db)
        if version == read:
            return version, None
        found = readable(
            LOOP,
            rows.all_targets(db),
            lambda one: (one.key, find(db, one.spec.resource_id, one.spec.dimension)),
            lambda record: record.key,
        )
        return version, dict(found)


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
    last, open_activity = rows.last_change(db, record.key)
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
        # A time zone that this machine does not know affects only its own schedule.
        with apart(LOOP, f"{record.resource_id} {record.name}"):
            found.append((action_of(record), record.due))
    return found


Counts = Callable[[str], Mapping[str, int]]
#: (endpoint, variant, component) -> time of the last starts of a copy, in s; None: none was
#: observed
StartS = Callable[[str, str, str], float | None]


class TargetLoads:
    """The load of variants and of inference components."""

    def __init__(
        self,
        registry: MetricRegistry,
        *,
        ready_counts: Counts,
        copy_counts: Counts,
        start_s: StartS,
    ) -> None:
        """
        Args:
            ready_counts: endpoint -> variant -> instances that serve.
            copy_counts: endpoint -> component -> ready copies.
        """
        self._registry = registry
        self._ready_counts = ready_counts
        self._copy_counts = copy_counts
        self._start_s = start_s

    def look(self, seen: CapacityObserved, *, now: float) -> LoadObserved:
        """`seen` has the names as they were given at creation."""
        name, component = (seen.endpoint, seen.variant), seen.component
        if component:
            ready = self._copy_counts(seen.endpoint).get(component, 0)
            totals = self._registry.components.get(name, {}).get(component)
        else:
            ready = self._ready_counts(seen.endpoint).get(seen.variant, 0)
            totals = self._registry.totals.get(name)
        in_flight = self._registry.in_flight(*name, component or None)
        return LoadObserved(
            at=now,
            capacity=seen.capacity,
            ready=ready,
            in_flight=in_flight,
            arrivals=in_flight + (totals.arrivals if totals is not None else 0),
            errors=totals.failures if totals is not None else 0,
            scalable=seen.scalable,
            settled=seen.settled,
            failure=seen.failure,
            out_of_reach=seen.out_of_reach,
            time_to_ready_s=self._start_s(*name, component),
        )
