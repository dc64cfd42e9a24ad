"""Why an endpoint has its capacity, as a timeline: observation, proposals, decision, reason.

Decisions since the server's start come from the machines; earlier ones come from the activities,
which record what they were decided from.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from penstock.control.scaling import resources, rows
from penstock.control.scaling.loading import LOOP
from penstock.control.scaling.records import ActivityRecord, TargetRecord
from penstock.control.scaling.resources import CapacityObserved
from penstock.control.scaling.writing import decision_json
from penstock.control.store.store import Store
from penstock.core.scaling.actions import ScalingDecision
from penstock.core.scaling.observed import LoadObserved
from penstock.metrics.item_failures import apart

ROWS_MAX: Final = 500
#: A decision and its activity are at most this far apart, in s.
_SAME_S: Final = 5.0


def endpoint_story(
    store: Store,
    endpoint: str,
    decisions: dict[tuple[str, str], list[ScalingDecision]],
    looks: dict[tuple[str, str], LoadObserved | None],
    faults: dict[tuple[str, str], str],
    *,
    at: float | None,
) -> list[dict[str, Any]]:
    """Each target of an endpoint with its timeline, oldest first. `at`: ends there; None: now.

    `faults`: why the last look at a target failed, for those that did.
    """
    with store.read() as db:
        stories = []
        for record in rows.all_targets(db):
            found = None
            with apart(LOOP, record.key, but=(SQLAlchemyError,)):
                found = resources.find(db, record.spec.resource_id, record.spec.dimension)
            if found is None or found.endpoint.lower() != endpoint.lower():
                continue
            named = record.spec.resource_id, record.spec.dimension
            written = rows.listed(
                db, resource_id=named[0], dimension=named[1], not_scaled=True, limit=ROWS_MAX
            )
            stories.append(
                _story(record, found, decisions.get(named, []), looks.get(named), written, at)
                | {
                    "fault": faults.get(named, ""),
                    "policies": [
                        {
                            "name": one.policy.name,
                            "type": one.kind,
                            "alarms": dict(one.alarms),
                            "fault": one.unreadable,
                        }
                        for one in rows.policies(db, record.key, alarms=True)
                    ],
                }
            )
        return stories


def _story(
    record: TargetRecord,
    found: CapacityObserved,
    decisions: list[ScalingDecision],
    look: LoadObserved | None,
    activities: list[ActivityRecord],
    at: float | None,
) -> dict[str, Any]:
    told = [decision_json(one) for one in decisions]
    known = [(one.at, one.to) for one in decisions]
    told += [
        _of_activity(one)
        for one in activities
        if one.not_scaled is None and not _is_known(one, known)
    ]
    told.sort(key=lambda one: one["at"])
    if at is not None:
        told = [one for one in told if one["at"] <= at]
    ends = {one.started: one for one in activities if one.change is not None}
    for one in told:
        one["activity"] = next(
            (
                {"status": other.status, "message": other.message}
                for started, other in ends.items()
                if one["was"] != one["to"] and abs(started - one["at"]) < _SAME_S
            ),
            None,
        )
    return {
        "resource_id": record.spec.resource_id,
        "dimension": record.spec.dimension,
        "capacity": found.capacity,
        "capacity_min": record.spec.capacity_min,
        "capacity_max": record.spec.capacity_max,
        "ready": None if look is None else look.ready,
        "in_flight": None if look is None else look.in_flight,
        "timeline": told[-ROWS_MAX:],
    }


def _is_known(record: ActivityRecord, known: list[tuple[float, int]]) -> bool:
    """Whether the machine's decisions include this activity already."""
    if record.change is None:
        return False
    to = record.change.to
    return any(to == capacity and abs(record.started - at) < _SAME_S for at, capacity in known)


def _of_activity(record: ActivityRecord) -> dict[str, Any]:
    change = record.change
    decided = change.decided if change is not None else {}
    return {
        "at": record.started,
        "trigger": record.cause,
        "was": change.was if change is not None else None,
        "to": change.to if change is not None else None,
        "reason": record.details,
        "observed": decided.get("observed"),
        "wishes": decided.get("wishes", []),
    }
