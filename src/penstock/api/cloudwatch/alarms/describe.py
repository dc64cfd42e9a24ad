"""DescribeAlarms, DescribeAlarmsForMetric, DescribeAlarmHistory.

It also renders an alarm as DescribeAlarms shows it.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.rules import (
    decode_token,
    dimensions_of,
    encode_token,
    invalid_combination,
    seconds,
)
from penstock.control.alarms import history, rows
from penstock.control.alarms.records import (
    AlarmQuery,
    AlarmRecord,
    HistoryItem,
    HistoryQuery,
)
from penstock.control.store.store import Store
from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.metrics.series.statistics import SIMPLE


def metric_alarm(record: AlarmRecord) -> dict[str, Any]:
    """The alarm's members; those that its creator left out are left out here too."""
    spec = record.spec
    shown: dict[str, Any] = {
        "AlarmName": spec.name,
        "AlarmArn": record.arn,
        "AlarmDescription": spec.description,
        "AlarmConfigurationUpdatedTimestamp": record.configuration_updated,
        "ActionsEnabled": record.actions_enabled,
        "OKActions": list(record.actions.ok),
        "AlarmActions": list(record.actions.alarm),
        "InsufficientDataActions": list(record.actions.insufficient_data),
        "StateValue": record.state,
        "StateReason": record.state_reason,
        "StateUpdatedTimestamp": record.state_updated,
        "StateTransitionedTimestamp": record.state_updated,
        **_watched(spec.queries),
        "EvaluationPeriods": spec.evaluation_periods,
        "DatapointsToAlarm": spec.datapoints_to_alarm,
        "Threshold": spec.threshold,
        "ComparisonOperator": spec.comparison,
        "TreatMissingData": spec.treat_missing_data,
    }
    if record.state_reason_data:
        shown["StateReasonData"] = record.state_reason_data
    if spec.low_samples != "evaluate":
        shown["EvaluateLowSampleCountPercentile"] = spec.low_samples
    return {name: value for name, value in shown.items() if name not in record.omitted}


def plain_metric(record: AlarmRecord) -> MetricStat | None:
    """The metric of an alarm without math; None for one with math."""
    first = record.spec.queries[0]
    return None if first.id else first.stat


def _watched(queries: tuple[MetricQuery, ...]) -> dict[str, Any]:
    stat = queries[0].stat
    if queries[0].id or stat is None:
        return {"Metrics": [_query(query) for query in queries]}
    return {
        "MetricName": stat.name,
        "Namespace": stat.namespace,
        "Statistic" if stat.stat in SIMPLE else "ExtendedStatistic": stat.stat,
        "Dimensions": _dimensions(stat),
        "Period": stat.period_s,
        **({"Unit": stat.unit} if stat.unit else {}),
    }


def _query(query: MetricQuery) -> dict[str, Any]:
    shown: dict[str, Any] = {"Id": query.id}
    stat = query.stat
    if stat is not None:
        shown["MetricStat"] = {
            "Metric": {
                "Namespace": stat.namespace,
                "MetricName": stat.name,
                "Dimensions": _dimensions(stat),
            },
            "Period": stat.period_s,
            "Stat": stat.stat,
            **({"Unit": stat.unit} if stat.unit else {}),
        }
    else:
        shown["Expression"] = query.expression
    if query.label:
        shown["Label"] = query.label
    if query.period_s is not None:
        shown["Period"] = query.period_s
    return shown | {"ReturnData": query.return_data}


def _dimensions(stat: MetricStat) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in stat.dimensions]


_METRIC_ALARM: Final = "MetricAlarm"
ALARMS_PER_PAGE: Final = 50
ITEMS_PER_PAGE: Final = 100


async def describe_alarms(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """Alarms in order of names. None is composite here, so none has parents or children."""
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
    """Alarms on exactly this metric; alarms on math over it are not included."""
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
    """The newest first by default; entries of deleted alarms are included."""
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
