"""What a new alarm watches, read from PutMetricAlarm: one metric, or math over several."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.api.cloudwatch.rules import (
    dimensions_of,
    invalid_combination,
    missing,
    validation_error,
)
from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.errors import CallerError
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.statistics import SIMPLE, parse_statistic

QUERIES_MAX: Final = 20
STATS_MAX: Final = 10
_ID: Final = re.compile(r"[a-z][a-zA-Z0-9_]*", re.ASCII)
_HIGH_RESOLUTION_S: Final = (10, 20, 30)
#: Members that describe a plain metric; `Metrics` excludes them.
_PLAIN: Final = (
    "MetricName", "Namespace", "Dimensions", "Period", "Unit", "Statistic", "ExtendedStatistic"
)  # fmt: skip


def alarm_queries(params: dict[str, Any], account_id: str) -> tuple[tuple[MetricQuery, ...], int]:
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


def _plain(params: dict[str, Any]) -> MetricStat:
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
    query_id = row["Id"]
    if not _ID.fullmatch(query_id):
        raise validation_error(
            f"The value {query_id} for parameter {at}.Id must begin with a lowercase letter and "
            "contain only letters, digits and underscores."
        )
    if row.get("AccountId") not in (None, account_id):
        raise validation_error(f"The {at}.AccountId is another account than {account_id}.")
    stat, expression = row.get("MetricStat"), row.get("Expression")
    if (stat is None) == (expression is None):
        raise validation_error(
            f"Exactly one of {at}.MetricStat and {at}.Expression must be specified."
        )
    period_s = row.get("Period")
    returned = row.get("ReturnData")
    if expression is not None:
        _checked_expression(query_id, expression)
    return MetricQuery(
        id=query_id,
        stat=None if stat is None else _stat(stat, at),
        expression=expression or "",
        label=row.get("Label") or "",
        period_s=None if period_s is None else _checked_period(period_s),
        return_data=returned is None or bool(returned),
    )


def _stat(stat: dict[str, Any], at: str) -> MetricStat:
    metric = stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if not metric.get(name):
            raise validation_error(f"The parameter {at}.MetricStat.Metric.{name} is required.")
    return MetricStat(
        namespace=metric["Namespace"],
        name=metric["MetricName"],
        dimensions=dimensions_of(metric.get("Dimensions"), f"{at}.MetricStat.Metric.Dimensions"),
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


def _checked_expression(query_id: str, text: str) -> None:
    try:
        parse_expression(text)
    except CallerError as error:
        raise validation_error(f"Error in expression '{query_id}': {error.message}") from error
