"""The queries of GetMetricData, read and checked: metrics to fetch and formulas to compute.

A request is large by the amount that it would read and compute, which is known in advance. A server
works on one large request at a time, with its arithmetic on a thread of its own. So small requests
never wait for large ones, the shared threads stay free, and the memory of only one large request is
in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from penstock.api.cloudwatch.rules import check_query, metric_of, period_fault, validation_error
from penstock.metrics.math.evaluate import Formula
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.statistics import Compute, parse_statistic

QUERIES_MAX: Final = 500


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
    check_query(row, at)
    stat, text = row.get("MetricStat"), row.get("Expression")
    period_s = row.get("Period")
    if period_s is not None and (fault := period_fault(period_s)):
        raise validation_error(fault)
    asked: MetricRead | Formula
    if stat is not None:
        asked = _metric_read(stat, at)
    else:
        asked = Formula(parse_expression(str(text)), period_s)
    returned = row.get("ReturnData")
    return Query(row["Id"], asked, row.get("Label"), returned is None or bool(returned))


def _metric_read(stat: dict[str, Any], at: str) -> MetricRead:
    metric = MetricName(*metric_of(stat, at))
    if fault := period_fault(stat["Period"]):
        raise validation_error(fault)
    return MetricRead(
        metric,
        stat["Stat"],
        parse_statistic(stat["Stat"]),
        stat["Period"],
        stat.get("Unit"),
    )


T = TypeVar("T")

#: Datapoints of a small request, each counted for every formula: some ten milliseconds.
SMALL_MAX: Final = 50_000
#: Characters of all expressions of a small request: reading them takes some ten milliseconds.
SMALL_CHARS_MAX: Final = 20_000

_thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-metrics")
_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


@asynccontextmanager
async def turn(*, large: bool) -> AsyncIterator[None]:
    """Waits for a large request's turn; a small request goes on at once."""
    if not large:
        yield
        return
    lock = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        yield


async def beside(work: Callable[[], T], *, large: bool) -> T:
    """Does `work` on a thread; large requests share one thread."""
    if not large:
        return await asyncio.to_thread(work)
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
