"""PutMetricAlarm: creates an alarm, or replaces the configuration of an existing one.

Everything is checked before anything is stored: an alarm that could never be computed is refused
here, and does not fail later.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any, Final

from penstock.api.aws import Members
from penstock.api.cloudwatch.alarms import add_tags, tags_of
from penstock.api.cloudwatch.rules import (
    CloudWatchContext,
    check_query,
    dimensions_of,
    invalid_combination,
    metric_of,
    missing,
    validation_error,
)
from penstock.api.refused_members import refused_members
from penstock.control.alarms import rows
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.records import AlarmActions, AlarmRecord
from penstock.control.store.store import Store
from penstock.core.alarms.evaluate import COMPARISONS
from penstock.core.alarms.spec import (
    BREACHING,
    IGNORE,
    MISSING,
    NOT_BREACHING,
    AlarmSpec,
    MetricQuery,
    MetricStat,
)
from penstock.errors import CallerError
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.statistics import SIMPLE, parse_statistic
from penstock.wire.aws.errors import AwsError

#: The limit of an account in AWS; each alarm is evaluated again and again.
ALARMS_MAX: Final = 5_000
_DAY_S: Final = 86_400
_WEEK_S: Final = 7 * _DAY_S
_HOUR_S: Final = 3_600
_TREATMENTS: Final = (BREACHING, NOT_BREACHING, IGNORE, MISSING)
_LOW_SAMPLES: Final = ("evaluate", "ignore")
_REFUSED: Final = refused_members("PutMetricAlarm")
_COMPARED: Final = _REFUSED.pop("ComparisonOperator")  # only some of its values are refused
#: Members with a default; a member that the caller left out is not shown either.
_OPTIONAL: Final = ("DatapointsToAlarm", "TreatMissingData", "AlarmDescription")


async def put_metric_alarm(context: CloudWatchContext, params: Members) -> Members:
    """Creates or replaces the alarm. The answer is empty."""
    # Twenty expressions of the greatest length and depth take a tenth of a second.
    spec = await asyncio.to_thread(_spec, params, context.account_id)
    name = spec.name
    record = AlarmRecord(
        spec=spec,
        arn=f"arn:aws:cloudwatch:{context.region}:{context.account_id}:alarm:{name}",
        actions=AlarmActions(
            ok=_actions(params, "OKActions"),
            alarm=_actions(params, "AlarmActions"),
            insufficient_data=_actions(params, "InsufficientDataActions"),
        ),
        actions_enabled=params.get("ActionsEnabled") is not False,
        omitted=tuple(member for member in _OPTIONAL if params.get(member) is None),
    )
    tags = tags_of(params.get("Tags"))
    if not await context.database.call(_put, record, tags, context.clock.wall()):
        raise AwsError(
            "LimitExceeded", f"There are {ALARMS_MAX} alarms; delete some to make others."
        )
    return {}


def _put(store: Store, record: AlarmRecord, tags: dict[str, str], now: float) -> bool:
    """Stores the alarm; False if there are too many. A replaced alarm keeps its tags and owner."""
    with store.begin() as db:
        before = rows.get(db, record.name)
        if before is not None:
            rows.put(db, replace(record, arn=before.arn, owner=before.owner), now=now)
            return True
        if rows.count(db) >= ALARMS_MAX:
            return False
        rows.put(db, record, now=now)
        add_tags(db, record.arn, tags)
    return True


def _spec(params: Members, account_id: str) -> AlarmSpec:
    name = params["AlarmName"]
    if not name.isprintable():
        raise validation_error("AlarmName must not contain control characters.")
    for member, why in _REFUSED.items():
        if params.get(member) is not None:
            raise validation_error(why)
    comparison = _required(params, "ComparisonOperator")
    if comparison not in COMPARISONS:
        cause = _COMPARED.format(comparison)
        raise validation_error(f"{cause} Use one of {', '.join(COMPARISONS)}.")
    threshold = float(_required(params, "Threshold"))
    if not math.isfinite(threshold):
        raise validation_error(f"The value {threshold} for parameter Threshold is invalid.")
    queries, period_s = alarm_queries(params, account_id)
    periods = _required(params, "EvaluationPeriods")
    _check_time(periods, period_s)
    spec = AlarmSpec(
        name=name,
        queries=queries,
        period_s=period_s,
        evaluation_periods=periods,
        datapoints_to_alarm=_datapoints(params, periods),
        threshold=threshold,
        comparison=comparison,
        treat_missing_data=_one_of(params, "TreatMissingData", _TREATMENTS, MISSING),
        description=params.get("AlarmDescription") or "",
        low_samples=_low_samples(params, queries),
    )
    try:
        Watched(spec)
    except CallerError as error:
        raise validation_error(f"{error.message} {error.hint}".strip()) from error
    return spec


def _check_time(periods: int, period_s: int) -> None:
    if period_s >= _HOUR_S and periods * period_s > _WEEK_S:
        raise validation_error(
            "Metrics cannot be checked across more than a week (EvaluationPeriods * Period must be "
            f"<= {_WEEK_S}) for alarms using period >= {_HOUR_S}"
        )
    if period_s < _HOUR_S and periods * period_s > _DAY_S:
        raise validation_error(
            "Metrics cannot be checked across more than a day (EvaluationPeriods * Period must be "
            f"<= {_DAY_S}) for alarms using period < {_HOUR_S}"
        )


def _datapoints(params: Members, periods: int) -> int:
    datapoints = params.get("DatapointsToAlarm")
    if datapoints is None:
        return periods
    if datapoints > periods:
        raise validation_error(
            f"DatapointsToAlarm ({datapoints}) must be less than or equal to EvaluationPeriods "
            f"({periods})."
        )
    return int(datapoints)


def _low_samples(params: Members, queries: tuple[MetricQuery, ...]) -> str:
    found = _one_of(params, "EvaluateLowSampleCountPercentile", _LOW_SAMPLES, "evaluate")
    stat = queries[0].stat
    given = params.get("EvaluateLowSampleCountPercentile") is not None
    if given and (stat is None or queries[0].id or not stat.stat.startswith("p")):
        raise invalid_combination(
            "EvaluateLowSampleCountPercentile can be used only with a percentile as "
            "ExtendedStatistic."
        )
    return found


def _actions(params: Members, member: str) -> tuple[str, ...]:
    actions = tuple(params.get(member) or ())
    for action in actions:
        if not (action.startswith("https://") or _is_arn(action)):
            raise validation_error(f"Invalid arn syntax: {action}")
    return actions


def _is_arn(text: str) -> bool:
    parts = text.split(":", 5)
    return len(parts) == 6 and parts[0] == "arn" and bool(parts[2] and parts[5])


def _one_of(params: Members, member: str, allowed: tuple[str, ...], default: str) -> str:
    value = params.get(member)
    if value is None:
        return default
    if value not in allowed:
        raise validation_error(
            f"The value {value} for parameter {member} is invalid. Use one of {', '.join(allowed)}."
        )
    return str(value)


def _required(params: Members, member: str) -> Any:
    value = params.get(member)
    if value is None:
        raise missing(member)
    return value


QUERIES_MAX: Final = 20
STATS_MAX: Final = 10
_HIGH_RESOLUTION_S: Final = (10, 20, 30)
#: Members that describe a plain metric; `Metrics` excludes them.
_PLAIN: Final = (
    "MetricName", "Namespace", "Dimensions", "Period", "Unit", "Statistic", "ExtendedStatistic"
)  # fmt: skip


def alarm_queries(params: Members, account_id: str) -> tuple[tuple[MetricQuery, ...], int]:
    """The queries, and the period in s of the datapoints that are evaluated.

    Raises:
        AwsError: with CloudWatch's codes.
    """
    rows = params.get("Metrics")
    if not rows:
        if not params.get("MetricName"):
            raise validation_error(
                "For each PutMetricAlarm operation, you must specify either MetricName, a Metrics "
                "array, or an EvaluationCriteria."
            )
        stat = _plain(params)
        return (MetricQuery(id="", stat=stat),), stat.period_s
    both = [name for name in _PLAIN if params.get(name)]
    if both:
        raise validation_error(f"Metrics can't be used together with {', '.join(both)}.")
    return _math(rows, account_id)


def _plain(params: Members) -> MetricStat:
    if not params.get("Namespace"):
        raise missing("Namespace")
    simple, extended = params.get("Statistic"), params.get("ExtendedStatistic")
    if simple and extended:
        raise invalid_combination(
            "The parameters Statistic and ExtendedStatistic are mutually exclusive and you have "
            "specified both."
        )
    if not simple and not extended:
        raise invalid_combination("Must specify either Statistic or ExtendedStatistic")
    if extended in SIMPLE:
        raise validation_error(f"The value {extended} is a Statistic, not an ExtendedStatistic.")
    period_s = params.get("Period")
    if period_s is None:
        raise missing("Period")
    return MetricStat(
        namespace=params["Namespace"],
        name=params["MetricName"],
        dimensions=dimensions_of(params.get("Dimensions"), "Dimensions"),
        period_s=_checked_period(period_s),
        stat=_checked_statistic(str(simple or extended)),
        unit=params.get("Unit"),
    )


def _math(rows: list[dict[str, Any]], account_id: str) -> tuple[tuple[MetricQuery, ...], int]:
    if len(rows) > QUERIES_MAX:
        raise validation_error(f"Metrics must have from 1 to {QUERIES_MAX} members.")
    queries = tuple(
        _query(row, f"Metrics.member.{number}", account_id) for number, row in enumerate(rows, 1)
    )
    ids = [query.id for query in queries]
    if len(set(ids)) < len(ids):
        raise validation_error("The values for parameter Id in Metrics must be unique.")
    periods = [query.stat.period_s for query in queries if query.stat is not None]
    if len(periods) > STATS_MAX:
        raise validation_error(f"Metrics must have at most {STATS_MAX} members with MetricStat.")
    returned = [query for query in queries if query.return_data]
    if len(returned) != 1:
        raise validation_error("Exactly one element of the metrics list should return data.")
    if returned[0].stat is not None:
        return queries, returned[0].stat.period_s
    # Two series have common datapoints at the longest of their periods.
    period_s = max(periods, default=0) or returned[0].period_s
    if not period_s:
        raise validation_error(f"The expression {returned[0].id!r} needs a Period.")
    return queries, period_s


def _query(row: dict[str, Any], at: str, account_id: str) -> MetricQuery:
    check_query(row, at)
    if row.get("AccountId") not in (None, account_id):
        raise validation_error(f"The {at}.AccountId is another account than {account_id}.")
    query_id, stat, expression = row["Id"], row.get("MetricStat"), row.get("Expression")
    period_s = row.get("Period")
    returned = row.get("ReturnData")
    try:
        if expression is not None:
            parse_expression(expression)
    except CallerError as error:
        raise validation_error(f"Error in expression '{query_id}': {error.message}") from error
    return MetricQuery(
        id=query_id,
        stat=None if stat is None else _stat(stat, at),
        expression=expression or "",
        label=row.get("Label") or "",
        period_s=None if period_s is None else _checked_period(period_s),
        return_data=returned is None or bool(returned),
    )


def _stat(stat: dict[str, Any], at: str) -> MetricStat:
    namespace, name, dimensions = metric_of(stat, at)
    return MetricStat(
        namespace=namespace,
        name=name,
        dimensions=dimensions,
        period_s=_checked_period(stat["Period"]),
        stat=_checked_statistic(stat["Stat"]),
        unit=stat.get("Unit"),
    )


def _checked_period(period_s: int) -> int:
    if period_s not in _HIGH_RESOLUTION_S and (period_s < 1 or period_s % 60):
        raise validation_error(
            f"The value {period_s} for parameter Period is invalid. Period must be 10, 20, 30, or "
            "a multiple of 60."
        )
    return period_s


def _checked_statistic(name: str) -> str:
    try:
        parse_statistic(name)
    except CallerError as error:
        raise validation_error(f"{error.message} {error.hint}") from error
    return name
