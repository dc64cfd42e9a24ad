"""GetMetricData: many metrics and metric math in one call, in pages.

Formulas and the metrics they use are computed anew for each page. Other metrics are read when a
page reaches them, so that hundreds of them over weeks make many pages, as in CloudWatch, and no
large request. A page's token names the result and the datapoint to go on after, so that new points
neither repeat nor hide others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.api.aws import Members, place_of, token_of
from penstock.api.cloudwatch.queries import (
    SMALL_CHARS_MAX,
    SMALL_MAX,
    MetricRead,
    Query,
    beside,
    parse_queries,
    turn,
)
from penstock.api.cloudwatch.rules import CloudWatchContext, period_fault, seconds, validation_error
from penstock.errors import CallerError
from penstock.metrics.math.estimate import Size, work_of
from penstock.metrics.math.evaluate import Evaluator, Formula, too_large
from penstock.metrics.math.expression import (
    FunctionCall,
    Name,
    Number,
    Text,
    calls_in,
    invalid,
    nodes_of,
)
from penstock.metrics.math.search import parse_search
from penstock.metrics.math.time_series import TimeSeries
from penstock.metrics.series.reading import read_statistic
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.statistics import SIMPLE, parse_statistic

DATAPOINTS_MAX: Final = 100_800
SEARCHES_MAX: Final = 5
FOUND_MAX: Final = 100  #: CloudWatch's own limit of one SEARCH
#: Points that one page reads at most: some seconds, in slices, and 100 MB.
POINTS_READ_MAX: Final = 1_000_000
#: Unpacking the distribution of a point takes as long as reading this many points without one.
_DISTRIBUTION_COST: Final = 4
_SEARCH_PERIOD_S: Final = 300

_SearchKey = tuple[str, str, int | None]


_Labelled = tuple[MetricRead, str]


@dataclass(slots=True)
class _Plan:
    """The metrics that a request reads, and the formulas that it computes."""

    queries: list[Query]
    reads: dict[str, _Labelled] = field(default_factory=dict)  #: Id of the query -> its metric
    formulas: dict[str, Formula] = field(default_factory=dict)
    searched: dict[_SearchKey, list[_Labelled]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  #: Ids of reads that formulas use
    is_large: bool = False

    def read_at_once(self) -> Iterator[_Labelled]:
        """The metrics that formulas use."""
        yield from (read for key, read in self.reads.items() if key in self.used)
        for found in self.searched.values():
            yield from found

    def read_in_pages(self) -> Iterator[MetricRead]:
        """The metrics that are shown and used by no formula."""
        for query in self.queries:
            paged = query.returned and query.query_id not in self.used
            if paged and isinstance(query.asked, MetricRead):
                yield query.asked


#: A query and its series; None where the series is read once a page reaches it.
_Row = tuple[Query, TimeSeries | None]


@dataclass(slots=True)
class _Result:
    query_id: str
    label: str
    points: list[tuple[int, float]]  #: in the requested order


async def get_metric_data(context: CloudWatchContext, params: Members) -> Members:
    """Results of the queries that return data, and a token if there is more."""
    limit = params.get("MaxDatapoints") or DATAPOINTS_MAX
    if not 1 <= limit <= DATAPOINTS_MAX:
        raise validation_error(f"MaxDatapoints must be from 1 to {DATAPOINTS_MAX}.")
    place = place_of(params, code="InvalidNextToken", fits=_is_place)
    reader = _MetricReader(context, seconds(params["StartTime"]), seconds(params["EndTime"]))
    rows = params["MetricDataQueries"]
    long = sum(len(row.get("Expression") or "") for row in rows) > SMALL_CHARS_MAX
    try:
        queries = await beside(lambda: parse_queries(rows), large=long)
        plan = await reader.plan(queries, long=long)
        async with turn(large=plan.is_large):
            first, told = place or [0, None]
            results, more = await reader.results(
                plan, first, limit, newest_first=params.get("ScanBy") != "TimestampAscending"
            )
            page, reached = await beside(
                lambda: _page(results, first, told, limit, more=more), large=plan.is_large
            )
    except CallerError as error:
        raise validation_error(f"{error.message} {error.hint}") from error
    answer: dict[str, Any] = {"MetricDataResults": page, "Messages": reader.messages}
    if reached is not None:
        answer["NextToken"] = token_of(params, reached)
    return answer


class _MetricReader:
    """Fetches the metrics of the queries, then evaluates the formulas."""

    def __init__(self, context: CloudWatchContext, start: float, end: float) -> None:
        if int(start) == int(end):  # the service reads whole seconds
            raise validation_error("The parameter StartTime must not equal parameter EndTime.")
        if not start < end:
            raise validation_error("The parameter EndTime must be greater than StartTime.")
        self._store = context.store
        self._start = start
        self._end = end
        self._now = context.clock.wall()
        self.messages: list[dict[str, str]] = []

    async def plan(self, queries: list[Query], *, long: bool) -> _Plan:
        """The metrics to read and the formulas; `long`: there are many metrics to search.

        Raises CallerError for more than a request may read.
        """
        labels = _default_labels([each.asked for each in queries])
        plan = _Plan(queries)
        for query in queries:
            if isinstance(query.asked, Formula):
                plan.formulas[query.query_id] = query.asked
            else:
                plan.reads[query.query_id] = query.asked, labels[query.asked]
        keys = await beside(lambda: _search_keys(plan), large=long) if plan.formulas else set()
        if len(keys) > SEARCHES_MAX:
            raise invalid(f"a request may hold {SEARCHES_MAX} different SEARCH calls")
        for key in sorted(keys, key=str):
            plan.searched[key] = await self._search(*key)
        plan.used = await beside(lambda: _used(plan), large=long) if plan.formulas else set()
        alone = [self._points(read) for read in plan.read_in_pages()]
        together = sum(self._points(read) for read, _ in plan.read_at_once())
        if (most := max([together, *alone])) > POINTS_READ_MAX:
            raise too_large(
                f"The request reads {most:,} datapoints at once, more than {POINTS_READ_MAX:,}."
            )
        work = await self._work(plan, long=long) if plan.formulas else 0
        plan.is_large = long or together + sum(alone) + work > SMALL_MAX
        return plan

    async def results(
        self, plan: _Plan, first: int, limit: int, *, newest_first: bool
    ) -> tuple[list[_Result], bool]:
        """Results from number `first` on, with at least `limit` datapoints after the first of
        them if there are as many; and whether more follow."""
        fetched = {
            key: await self._fetch(*plan.reads[key]) for key in plan.reads if key in plan.used
        }
        searched = {
            key: [await self._fetch(*one) for one in found] for key, found in plan.searched.items()
        }
        rows: list[_Row] = [(query, None) for query in plan.queries if query.returned]
        if plan.formulas:
            # Hundreds of formulas over a SEARCH's results take a second, so they leave the loop.
            rows = await beside(
                lambda: self._evaluated(plan, fetched, searched), large=plan.is_large
            )
        results: list[_Result] = []
        read = shown = 0
        for query, found in rows[first:]:
            if (series := found) is None:
                asked, label = plan.reads[query.query_id]
                read += self._points(asked)
                if results and read > POINTS_READ_MAX:
                    return results, True
                series = await self._fetch(asked, label)
            # the page before may have shown some of the first
            shown += len(series.values) if results else 0
            points = sorted(series.values.items(), reverse=newest_first)
            results.append(_Result(query.query_id, _label(query, series), points))
            if shown >= limit:
                break
        return results, first + len(results) < len(rows)

    def _evaluated(
        self,
        plan: _Plan,
        fetched: dict[str, TimeSeries],
        searched: dict[_SearchKey, list[TimeSeries]],
    ) -> list[_Row]:
        evaluator = Evaluator(
            fetched,
            plan.formulas,
            lambda *key: searched[key],
            start=self._start,
            end=self._end,
        )
        rows: list[_Row] = []
        for query in plan.queries:
            if query.returned:
                in_pages = isinstance(query.asked, MetricRead) and query.query_id not in fetched
                found = [None] if in_pages else evaluator.series_of(query.query_id)
                rows += [(query, series) for series in found]
        return rows

    async def _work(self, plan: _Plan, *, long: bool) -> int:
        reads = {key: self._size(read) for key, (read, _) in plan.reads.items()}
        searched = {
            key: tuple(self._size(read) for read, _ in found)
            for key, found in plan.searched.items()
        }
        return await beside(
            lambda: work_of(
                reads,
                plan.formulas,
                lambda *key: searched[key],
                start=self._start,
                end=self._end,
            ),
            large=long,
        )

    def _size(self, read: MetricRead) -> Size:
        """The cost in datapoints: one for each period, however many points it is made of."""
        most = math.ceil((self._end - self._start) / read.period_s) + 1
        return Size(read.period_s, min(self._stored(read), most))

    def _points(self, read: MetricRead) -> int:
        """The cost of reading, in points without a distribution."""
        count = self._stored(read)
        return count if read.statistic in SIMPLE else count * _DISTRIBUTION_COST

    def _stored(self, read: MetricRead) -> int:
        since = self._start - read.period_s  # a period that contains the start counts as a whole
        return self._store.count(read.metric, since, self._end, read.period_s, read.unit)

    async def _fetch(self, read: MetricRead, label: str) -> TimeSeries:
        values = await read_statistic(
            self._store,
            read.metric,
            read.statistic,
            read.compute,
            start=self._start,
            end=self._end,
            period_s=read.period_s,
            unit=read.unit,
            now=self._now,
        )
        return TimeSeries(label, read.period_s, values)

    async def _search(self, what: str, statistic: str, period_s: int | None) -> list[_Labelled]:
        """The results of a SEARCH, found before the formulas run, because those can't wait."""
        period_s = _SEARCH_PERIOD_S if period_s is None else period_s
        if fault := period_fault(period_s):
            raise validation_error(fault)
        matches, compute = parse_search(what), parse_statistic(statistic)
        known = list(self._store.metrics())
        # A thousand words against each of ten thousand metrics is too much for the loop.
        metrics = await beside(
            lambda: [metric for metric in known if matches(metric)],
            large=len(known) * len(what.split()) > SMALL_MAX,
        )
        if len(metrics) > FOUND_MAX:
            self.messages.append(
                {
                    "Code": "MaxMetricsExceeded",
                    "Value": f"SEARCH found {len(metrics)} metrics; only {FOUND_MAX} are used.",
                }
            )
        return [
            (MetricRead(metric, statistic, compute, period_s, None), _found_label(metric))
            for metric in metrics[:FOUND_MAX]
        ]


def _used(plan: _Plan) -> set[str]:
    """Ids of metrics that a formula needs: by name, or all where a formula takes all."""
    used: set[str] = set()
    for formula in plan.formulas.values():
        for node in nodes_of(formula.tree):
            match node:
                case FunctionCall("METRICS" | "TIME_SERIES"):
                    return set(plan.reads)
                case Name(name):
                    used.add(name)
    return used & plan.reads.keys()


def _search_keys(plan: _Plan) -> set[_SearchKey]:
    return {
        _search_key(call, formula.period_s)
        for formula in plan.formulas.values()
        for call in calls_in(formula.tree, "SEARCH")
    }


def _search_key(call: FunctionCall, period_s: int | None) -> _SearchKey:
    match call.arguments:
        case (Text(what), Text(statistic), Number(own_period_s)):
            return what, statistic, int(own_period_s)
        case (Text(what), Text(statistic)):
            return what, statistic, period_s
    raise invalid("SEARCH takes '<what>', '<statistic>' and a period in seconds")


def _default_labels(asked: list[MetricRead | Formula]) -> dict[MetricRead, str]:
    """Metric names, with the statistic where the request has several of one metric."""
    reads = [each for each in asked if isinstance(each, MetricRead)]
    statistics: dict[MetricName, set[str]] = {}
    for read in reads:
        statistics.setdefault(read.metric, set()).add(read.statistic)
    return {
        read: f"{read.metric.name} {read.statistic}"
        if len(statistics[read.metric]) > 1
        else read.metric.name
        for read in reads
    }


def _found_label(metric: MetricName) -> str:
    return " ".join([*(value for _, value in metric.dimensions), metric.name])


def _label(query: Query, series: TimeSeries) -> str:
    if isinstance(query.asked, MetricRead):
        return query.label or series.label
    if any(calls_in(query.asked.tree, "SEARCH")) and series.label:
        return f"{query.label} {series.label}" if query.label else series.label
    return query.label or query.query_id


def _page(
    results: list[_Result], first: int, told: int | None, limit: int, *, more: bool
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """The page that begins at result number `first`, and the next page's place; None at the end.

    A place is the number of a result and the timestamp of its last shown point; None = none shown.
    """
    page: list[dict[str, Any]] = []
    for number, result in enumerate(results, first):
        if limit == 0:
            return page, [number, None]
        points = _after(result.points, told) if number == first else result.points
        taken = points[:limit]
        limit -= len(taken)
        complete = len(taken) == len(points)
        page.append(
            {
                "Id": result.query_id,
                "Label": result.label,
                "Timestamps": [float(at) for at, _ in taken],
                "Values": [value for _, value in taken],
                "StatusCode": "Complete" if complete else "PartialData",
            }
        )
        if not complete:
            return page, [number, taken[-1][0]]
    return page, [first + len(results), None] if more else None


def _is_place(place: Any) -> bool:
    match place:
        case [int(number), None | int()]:
            return number >= 0
    return False


def _after(points: list[tuple[int, float]], told: int | None) -> list[tuple[int, float]]:
    if told is None or not points:
        return points
    if points[0][0] > points[-1][0]:
        return [point for point in points if point[0] < told]
    return [point for point in points if point[0] > told]
