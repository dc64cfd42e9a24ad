"""The history of alarms, as CloudWatch reports it: configuration changes, state changes, actions.

Items are kept for thirty days and up to a number per alarm, also of deleted alarms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson
from sqlalchemy import Connection, and_, delete, func, insert, or_, select

from penstock.control.alarms.records import (
    ACTION,
    CONFIGURATION_UPDATE,
    STATE_UPDATE,
    AlarmRecord,
    HistoryItem,
    HistoryQuery,
)
from penstock.control.database import schema
from penstock.control.database.mapping import values_of
from penstock.core.alarms.spec import AlarmSpec, MetricStat
from penstock.core.alarms.words import moment

KEPT_S: Final = 30 * 86_400.0  #: as long as CloudWatch keeps it
#: Items per alarm: at least two hours of an alarm with a period of 10 s that always changes state.
ITEMS_MAX: Final = 2_000
#: CloudWatch's limit for a summary; names and actions may be longer.
SUMMARY_CHARS_MAX: Final = 255


def add(db: Connection, items: Iterable[HistoryItem]) -> None:
    """Writes items in their order."""
    found = [values_of(schema.alarm_history, item) for item in items]
    if found:
        db.execute(insert(schema.alarm_history), found)


def listed(db: Connection, query: HistoryQuery) -> list[HistoryItem]:
    """The items that pass all filters, in order of time."""
    columns = schema.alarm_history.c
    wanted = select(schema.alarm_history).limit(query.limit)
    if query.alarm:
        wanted = wanted.where(columns.alarm == query.alarm)
    if query.kind:
        wanted = wanted.where(columns.kind == query.kind)
    if query.since is not None:
        wanted = wanted.where(columns.at >= query.since)
    if query.until is not None:
        wanted = wanted.where(columns.at <= query.until)
    if query.newest_first:
        wanted = wanted.order_by(columns.at.desc(), columns.id.desc())
    else:
        wanted = wanted.order_by(columns.at, columns.id)
    if query.after is not None:
        at, number = query.after
        if query.newest_first:
            beyond = or_(columns.at < at, and_(columns.at == at, columns.id < number))
        else:
            beyond = or_(columns.at > at, and_(columns.at == at, columns.id > number))
        wanted = wanted.where(beyond)
    return [HistoryItem(**row) for row in db.execute(wanted).mappings()]


def prune(db: Connection, *, now: float) -> None:
    """Deletes items that are too old, and the oldest of alarms that have too many."""
    table = schema.alarm_history
    columns = table.c
    db.execute(delete(table).where(columns.at < now - KEPT_S))
    crowded = db.execute(
        select(columns.alarm).group_by(columns.alarm).having(func.count() > ITEMS_MAX)
    )
    for (alarm,) in crowded.all():
        newest = (
            select(columns.id)
            .where(columns.alarm == alarm)
            .order_by(columns.id.desc())
            .offset(ITEMS_MAX)
            .limit(1)
        )
        last = db.scalar(newest)
        db.execute(delete(table).where(columns.alarm == alarm, columns.id <= last))


def configured(record: AlarmRecord, before: AlarmRecord | None, *, now: float) -> HistoryItem:
    """The item for an alarm that was created, or changed from `before`."""
    what = "created" if before is None else "updated"
    data = {
        "version": "1.0",
        "type": "Create" if before is None else "Update",
        f"{what}Alarm": _configuration(record),
    }
    return _item(record, CONFIGURATION_UPDATE, f'Alarm "{record.name}" {what}', data, now)


def deleted(record: AlarmRecord, *, now: float) -> HistoryItem:
    data = {"version": "1.0", "type": "Delete", "deletedAlarm": _configuration(record)}
    return _item(record, CONFIGURATION_UPDATE, f'Alarm "{record.name}" deleted', data, now)


def state_changed(record: AlarmRecord, before: AlarmRecord, *, now: float) -> HistoryItem:
    """The item for a change from the state of `before` to that of `record`."""
    data = {"version": "1.0", "oldState": _state(before), "newState": _state(record)}
    summary = f"Alarm updated from {before.state} to {record.state}"
    return _item(record, STATE_UPDATE, summary, data, now)


def acted(record: AlarmRecord, action: str, *, fault: str, now: float) -> HistoryItem:
    """The item for an action that ran, or that failed because of `fault`."""
    data = {
        "actionState": "Failed" if fault else "Succeeded",
        "stateUpdateTimestamp": int(record.state_updated * 1000),
        "notificationResource": action,
        "error": fault or None,
    }
    done = "Failed to execute action" if fault else "Successfully executed action"
    why = f". Error: {fault}" if fault else ""
    return _item(record, ACTION, f"{done} {action}{why}", data, now)


def _item(
    record: AlarmRecord, kind: str, summary: str, data: dict[str, Any], now: float
) -> HistoryItem:
    known = {name: value for name, value in data.items() if value is not None}
    return HistoryItem(
        alarm=record.name,
        at=now,
        kind=kind,
        summary=summary[:SUMMARY_CHARS_MAX],
        data=orjson.dumps(known).decode(),
    )


def _state(record: AlarmRecord) -> dict[str, Any]:
    state: dict[str, Any] = {
        "stateValue": record.state,
        "stateReason": record.state_reason,
    }
    if record.state_reason_data:
        state["stateReasonData"] = orjson.loads(record.state_reason_data)
    return state


def _configuration(record: AlarmRecord) -> dict[str, Any]:
    spec = record.spec
    return {
        "alarmName": spec.name,
        "alarmDescription": spec.description,
        "alarmArn": record.arn,
        "alarmConfigurationUpdatedTimestamp": moment(record.configuration_updated),
        **_watched(spec),
        "evaluationPeriods": spec.evaluation_periods,
        "datapointsToAlarm": spec.datapoints_to_alarm,
        "threshold": spec.threshold,
        "comparisonOperator": spec.comparison,
        "treatMissingData": spec.treat_missing_data,
        "actionsEnabled": record.actions_enabled,
        "okActions": record.actions.ok,
        "alarmActions": record.actions.alarm,
        "insufficientDataActions": record.actions.insufficient_data,
        "stateValue": record.state,
    }


def _watched(spec: AlarmSpec) -> dict[str, Any]:
    first = spec.queries[0]
    if not first.id and first.stat is not None:
        return _stat(first.stat)
    return {
        "metrics": [
            {
                "id": query.id,
                "returnData": query.return_data,
                **({"label": query.label} if query.label else {}),
                **(
                    {"expression": query.expression}
                    if query.stat is None
                    else {"metricStat": _stat(query.stat)}
                ),
            }
            for query in spec.queries
        ]
    }


def _stat(stat: MetricStat) -> dict[str, Any]:
    return {
        "namespace": stat.namespace,
        "metricName": stat.name,
        "dimensions": [{"name": name, "value": value} for name, value in stat.dimensions],
        "statistic": stat.stat,
        "period": stat.period_s,
        **({"unit": stat.unit} if stat.unit else {}),
    }
