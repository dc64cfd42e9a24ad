"""DescribeAlarms, DescribeAlarmsForMetric, DescribeAlarmHistory."""

from __future__ import annotations

from typing import Any, Final

from penstock.api.cloudwatch.alarms.views import metric_alarm, plain_metric
from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.paging import decode_token, encode_token
from penstock.api.cloudwatch.rules import dimensions_of, invalid_combination, seconds
from penstock.control.alarms import history, rows
from penstock.control.alarms.records import (
    AlarmQuery,
    AlarmRecord,
    HistoryItem,
    HistoryQuery,
)
from penstock.control.store.store import Store

_METRIC_ALARM: Final = "MetricAlarm"
ALARMS_PER_PAGE: Final = 50
ITEMS_PER_PAGE: Final = 100


async def describe_alarms(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """In the order of names. No alarm here is composite, so none has parents or children."""
    names = tuple(params.get("AlarmNames") or ())
    prefix = params.get("AlarmNamePrefix") or ""
    if names and prefix:
        raise invalid_combination(
            "The parameters AlarmNames and AlarmNamePrefix are mutually exclusive and you have "
            "specified both."
        )
    place = decode_token(params, code="InvalidNextToken", fits=_is_name)
    result: dict[str, Any] = {"MetricAlarms": [], "CompositeAlarms": []}
    related = params.get("ChildrenOfAlarmName") or params.get("ParentsOfAlarmName")
    if related or not _asked_for_metric_alarms(params):
        return result
    limit = params.get("MaxRecords") or ALARMS_PER_PAGE
    query = AlarmQuery(
        names=names,
        prefix=prefix,
        state=params.get("StateValue") or "",
        action_prefix=params.get("ActionPrefix") or "",
        after=place[0] if place else "",
        limit=limit + 1,
    )
    found = await context.database.call(_alarms, query)
    result["MetricAlarms"] = [metric_alarm(record) for record in found[:limit]]
    if len(found) > limit:
        result["NextToken"] = encode_token(params, [found[limit - 1].name])
    return result


async def describe_alarms_for_metric(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    """Alarms on just this metric; those on math over it are not among them."""
    dimensions = dimensions_of(params.get("Dimensions"), "Dimensions")
    statistic = params.get("Statistic") or params.get("ExtendedStatistic")
    shown = []
    for record in await context.database.call(_alarms, AlarmQuery()):
        stat = plain_metric(record)
        if (
            stat is not None
            and (stat.namespace, stat.name) == (params["Namespace"], params["MetricName"])
            and stat.dimensions == dimensions
            and statistic in (None, stat.stat)
            and params.get("Period") in (None, stat.period_s)
            and params.get("Unit") in (None, stat.unit)
        ):
            shown.append(metric_alarm(record))
    return {"MetricAlarms": shown}


async def describe_alarm_history(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    """The newest first, if not asked otherwise; of deleted alarms too."""
    place = decode_token(params, code="InvalidNextToken", fits=_is_item)
    if not _asked_for_metric_alarms(params) or params.get("AlarmContributorId"):
        return {"AlarmHistoryItems": []}
    limit = params.get("MaxRecords") or ITEMS_PER_PAGE
    since, until = params.get("StartDate"), params.get("EndDate")
    query = HistoryQuery(
        alarm=params.get("AlarmName") or "",
        kind=params.get("HistoryItemType") or "",
        since=None if since is None else seconds(since),
        until=None if until is None else seconds(until),
        newest_first=params.get("ScanBy") != "TimestampAscending",
        after=(place[0], place[1]) if place else None,
        limit=limit + 1,
    )
    found = await context.database.call(_history, query)
    result: dict[str, Any] = {"AlarmHistoryItems": [_item(item) for item in found[:limit]]}
    if len(found) > limit:
        last = found[limit - 1]
        result["NextToken"] = encode_token(params, [last.at, last.id])
    return result


def _item(item: HistoryItem) -> dict[str, Any]:
    return {
        "AlarmName": item.alarm,
        "AlarmType": _METRIC_ALARM,
        "Timestamp": item.at,
        "HistoryItemType": item.kind,
        "HistorySummary": item.summary,
        "HistoryData": item.data,
    }


def _asked_for_metric_alarms(params: dict[str, Any]) -> bool:
    return _METRIC_ALARM in (params.get("AlarmTypes") or (_METRIC_ALARM,))


def _alarms(store: Store, query: AlarmQuery) -> list[AlarmRecord]:
    with store.read() as db:
        return rows.listed(db, query)


def _history(store: Store, query: HistoryQuery) -> list[HistoryItem]:
    with store.read() as db:
        return history.listed(db, query)


def _is_name(place: Any) -> bool:
    match place:
        case [str()]:
            return True
    return False


def _is_item(place: Any) -> bool:
    match place:
        case [float(), int()]:
            return True
    return False
