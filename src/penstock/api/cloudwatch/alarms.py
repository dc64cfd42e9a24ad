"""The operations on alarms but PutMetricAlarm: describing, switching, deleting and tagging them.

`control/alarms` keeps the alarms and decides on their states. Alarms are the only resources with
tags here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import orjson
from sqlalchemy import Connection

from penstock.api.aws import Members, place_of, token_of
from penstock.api.cloudwatch.rules import (
    CloudWatchContext,
    dimensions_of,
    invalid_combination,
    invalid_value,
    seconds,
    validation_error,
)
from penstock.api.refused_members import REFUSED
from penstock.control.alarms import history, rows, tags
from penstock.control.alarms.records import AlarmQuery, AlarmRecord, HistoryItem, HistoryQuery
from penstock.control.store.records import TooManyTags
from penstock.control.store.rows import TAG_COUNT_MAX
from penstock.control.store.store import Store
from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.metrics.series.statistics import SIMPLE
from penstock.wire.aws.errors import AwsError

T = TypeVar("T")


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


async def describe_alarms(context: CloudWatchContext, params: Members) -> Members:
    """Alarms in order of names. None is composite here, so none has parents or children."""
    names = tuple(params.get("AlarmNames") or ())
    prefix = params.get("AlarmNamePrefix") or ""
    if names and prefix:
        raise invalid_combination(
            "The parameters AlarmNames and AlarmNamePrefix are mutually exclusive and you have "
            "specified both."
        )
    place = place_of(params, code="InvalidNextToken", fits=_holds(str))
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
    found = await _read(context, lambda db: rows.listed(db, query))
    result["MetricAlarms"] = [metric_alarm(record) for record in found[:limit]]
    if len(found) > limit:
        result["NextToken"] = token_of(params, [found[limit - 1].name])
    return result


async def describe_alarms_for_metric(context: CloudWatchContext, params: Members) -> Members:
    """Alarms on exactly this metric; alarms on math over it are not included."""
    dimensions = dimensions_of(params.get("Dimensions"), "Dimensions")
    statistic = params.get("Statistic") or params.get("ExtendedStatistic")
    shown = []
    for record in await _read(context, lambda db: rows.listed(db, AlarmQuery())):
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


async def describe_alarm_history(context: CloudWatchContext, params: Members) -> Members:
    """The newest first by default; entries of deleted alarms are included."""
    place = place_of(params, code="InvalidNextToken", fits=_holds(float, int))
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
    found = await _read(context, lambda db: history.listed(db, query))
    result: dict[str, Any] = {"AlarmHistoryItems": [_item(item) for item in found[:limit]]}
    if len(found) > limit:
        last = found[limit - 1]
        result["NextToken"] = token_of(params, [last.at, last.id])
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


def _asked_for_metric_alarms(params: Members) -> bool:
    return _METRIC_ALARM in (params.get("AlarmTypes") or (_METRIC_ALARM,))


def _holds(*kinds: type) -> Callable[[Any], bool]:
    """Whether a token's place is a list of such values."""
    return lambda place: isinstance(place, list) and [type(one) for one in place] == [*kinds]


async def set_alarm_state(context: CloudWatchContext, params: Members) -> Members:
    """Sets a state that lasts until the next evaluation, when the metric decides again."""
    data = params.get("StateReasonData") or ""
    if data:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise AwsError("InvalidFormat", "Data was not syntactically valid JSON") from error
    name = params["AlarmName"]
    if not await context.alarms.set_state(name, params["StateValue"], params["StateReason"], data):
        raise _unknown([name])
    return {}


async def enable_alarm_actions(context: CloudWatchContext, params: Members) -> Members:
    return await _switch(context, params, enabled=True)


async def disable_alarm_actions(context: CloudWatchContext, params: Members) -> Members:
    return await _switch(context, params, enabled=False)


async def delete_alarms(context: CloudWatchContext, params: Members) -> Members:
    """Deletes the alarms that exist, even if others do not."""
    names = list(params["AlarmNames"])
    now = context.clock.wall()
    removed = await _changed(context, lambda db: rows.remove(db, names, now=now))
    unknown = sorted(set(names) - set(removed))
    if unknown:
        raise _unknown(unknown)
    return {}


async def put_composite_alarm(context: CloudWatchContext, params: Members) -> Members:
    raise validation_error(REFUSED["PutCompositeAlarm"])


async def _switch(context: CloudWatchContext, params: Members, *, enabled: bool) -> Members:
    names, now = params["AlarmNames"], context.clock.wall()
    await _changed(context, lambda db: rows.enable_actions(db, names, enabled=enabled, now=now))
    return {}


async def _changed(context: CloudWatchContext, work: Callable[[Connection], T]) -> T:
    """Does `work` in one transaction."""

    def change(store: Store) -> T:
        with store.begin() as db:
            return work(db)

    return await context.database.call(change)


async def _read(context: CloudWatchContext, work: Callable[[Connection], T]) -> T:
    """The same for one that only reads."""

    def read(store: Store) -> T:
        with store.read() as db:
            return work(db)

    return await context.database.call(read)


def _unknown(names: list[str]) -> AwsError:
    return AwsError("ResourceNotFound", f"There is no alarm named {', '.join(names)}.")


async def tag_resource(context: CloudWatchContext, params: Members) -> Members:
    arn, given = params["ResourceARN"], tags_of(params["Tags"])
    await _changed(context, lambda db: add_tags(db, _known(db, arn), given))
    return {}


async def untag_resource(context: CloudWatchContext, params: Members) -> Members:
    arn, names = params["ResourceARN"], params["TagKeys"]
    await _changed(context, lambda db: tags.remove(db, _known(db, arn), names))
    return {}


async def list_tags_for_resource(context: CloudWatchContext, params: Members) -> Members:
    arn = params["ResourceARN"]
    found = await _read(context, lambda db: tags.of(db, _known(db, arn)))
    return {"Tags": [{"Key": name, "Value": value} for name, value in found.items()]}


def tags_of(given: Iterable[dict[str, Any]] | None) -> dict[str, str]:
    """The request's tags as a map. Raises AwsError if a key occurs twice, or there are too many."""
    found: dict[str, str] = {}
    for tag in given or ():
        if tag["Key"] in found:
            raise invalid_value(f"The tag key {tag['Key']} was given twice.")
        found[tag["Key"]] = tag["Value"]
    if len(found) > TAG_COUNT_MAX:
        raise invalid_value(f"An alarm must not have more than {TAG_COUNT_MAX} tags.")
    return found


def add_tags(db: Connection, arn: str, given: dict[str, str]) -> None:
    """Adds tags. Raises AwsError if there would be too many."""
    try:
        tags.add(db, arn, given)
    except TooManyTags as error:
        raise invalid_value(error.message) from error


def _known(db: Connection, arn: str) -> str:
    """The ARN of an alarm that exists."""
    name = arn.split(":alarm:", 1)[-1]
    record = rows.get(db, name)
    if record is None or record.arn != arn:
        raise AwsError("ResourceNotFoundException", f"There is no alarm with the ARN {arn}.")
    return arn
