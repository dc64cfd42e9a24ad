"""The queries of GetMetricData, read and checked: metrics to fetch and formulas to compute."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from penstock.api.cloudwatch.rules import dimensions_of, period_fault, validation_error
from penstock.metrics.math.evaluate import Formula
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.statistic_names import Compute, parse_statistic

QUERIES_MAX: Final = 500
_ID: Final = re.compile(r"[a-z][a-zA-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetricRead:
    """One metric with a statistic and a period."""

    metric: MetricName
    statistic: str
    compute: Compute
    period_s: int
    unit: str | None


@dataclass(frozen=True, slots=True)
class Query:
    """One entry of MetricDataQueries."""

    query_id: str
    asked: MetricRead | Formula
    label: str | None
    returned: bool


def parse_queries(rows: list[dict[str, Any]]) -> list[Query]:
    """All queries, in the order of the request.

    Raises:
        AwsError: ValidationError.
        CallerError: a statistic or an expression that can't be read.
    """
    if not 1 <= len(rows) <= QUERIES_MAX:
        raise validation_error(
            f"The parameter MetricDataQueries must have from 1 to {QUERIES_MAX} members."
        )
    queries = [_parse(row, f"MetricDataQueries.member.{i}") for i, row in enumerate(rows, 1)]
    ids = [query.query_id for query in queries]
    if len(set(ids)) < len(ids):
        raise validation_error("The values for parameter Id in MetricDataQueries must be unique.")
    if not any(query.returned for query in queries):
        raise validation_error("At least one of MetricDataQueries must have ReturnData true.")
    return queries


def _parse(row: dict[str, Any], at: str) -> Query:
    query_id = row["Id"]
    if not _ID.fullmatch(query_id):
        raise validation_error(
            f"The value {query_id} for parameter {at}.Id must begin with a lowercase letter and "
            "contain only letters, digits and underscores."
        )
    stat, text = row.get("MetricStat"), row.get("Expression")
    if (stat is None) == (text is None):
        raise validation_error(
            f"Exactly one of {at}.MetricStat and {at}.Expression must be specified."
        )
    period_s = row.get("Period")
    if period_s is not None and (fault := period_fault(period_s)):
        raise validation_error(fault)
    asked: MetricRead | Formula
    if stat is not None:
        asked = _metric_read(stat, at)
    else:
        asked = Formula(parse_expression(str(text)), period_s)
    returned = row.get("ReturnData")
    return Query(query_id, asked, row.get("Label"), returned is None or bool(returned))


def _metric_read(stat: dict[str, Any], at: str) -> MetricRead:
    metric = stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if not metric.get(name):
            raise validation_error(f"The parameter {at}.MetricStat.Metric.{name} is required.")
    if fault := period_fault(stat["Period"]):
        raise validation_error(fault)
    dimensions = dimensions_of(metric.get("Dimensions"), f"{at}.MetricStat.Metric.Dimensions")
    return MetricRead(
        MetricName(metric["Namespace"], metric["MetricName"], dimensions),
        stat["Stat"],
        parse_statistic(stat["Stat"]),
        stat["Period"],
        stat.get("Unit"),
    )
