"""How each alarm came to its state, JSON-ready: what the last look saw, and when the next is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.control.alarms.driver import AlarmSeen

#: Of each alarm; one of a day of periods has thousands.
DATAPOINTS_MAX = 100


def explained(alarms: Iterable[AlarmSeen]) -> list[dict[str, Any]]:
    return [_row(alarm) for alarm in alarms]


def _row(alarm: AlarmSeen) -> dict[str, Any]:
    record, spec = alarm.record, alarm.record.spec
    return {
        "alarm": record.name,
        "owner": record.owner,
        "state": record.state,
        "state_reason": record.state_reason,
        "state_since": record.state_updated,
        "rule": (
            f"{spec.datapoints_to_alarm} of {spec.evaluation_periods} x {spec.period_s} s "
            f"{spec.comparison} {spec.threshold}, missing data: {spec.treat_missing_data}"
        ),
        "reason": alarm.decision.reason if alarm.decision is not None else "not-looked-at",
        "looked_at": alarm.looked_at,
        "look_at": alarm.look_at,
        "datapoints": [
            {"at": point.at, "value": point.value} for point in alarm.datapoints[-DATAPOINTS_MAX:]
        ],
    }
