"""Computes metric math: the results of a set of queries that refer to each other by id.

The reader of the store is passed in, so that alarms, scaling policies and the CloudWatch API share
this code. Cycles, unknown names and functions are the caller's errors, and so is work beyond a
limit: users write the expressions, and the evaluating process has other work. Before each step, the
datapoints that it will read or make are counted. A step beyond the limit is refused, not computed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

from penstock.errors import CallerError
from penstock.metrics.math.expression import (
    Binary,
    FunctionCall,
    ListExpression,
    Name,
    Negation,
    Node,
    Number,
    Text,
    invalid,
)
from penstock.metrics.math.time_series import (
    TimeSeries,
    Value,
    apply,
    combine,
    deviation,
    differences,
    finite,
    interpolated,
    points,
    rates,
    reduce,
    repeated,
    running_sum,
)

#: Datapoints of one series made by FILL or TIME_SERIES: the limit of one GetMetricData answer.
DATAPOINTS_MAX: Final = 100_800
#: Datapoints of all steps of an evaluator's formulas; about a quarter of a second.
WORK_MAX: Final = 1_000_000
#: Nesting through all formulas that use each other. Each level takes five frames of the stack's
#: thousand.
NESTED_MAX: Final = 120

#: Code of the error for work beyond a limit.
TOO_LARGE: Final = "query-too-large"


@dataclass(frozen=True, slots=True)
class Formula:
    """A query that is an expression."""

    tree: Node
    #: period of the series that FILL and SEARCH make, if they name none; None: not given
    period_s: int | None = None


class ExpressionWalk:
    """Goes through formulas in the order of their computation, each id once, and counts the
    datapoints of each step before the step is taken.

    A subclass says what a value is, and a series and a scalar among values: numbers, or sizes
    alone. A list of series is a list in both.
    """

    over_limit: ClassVar[str]  #: the error for more work than `WORK_MAX`

    def __init__(
        self,
        fetched: Mapping[str, Any],
        formulas: Mapping[str, Formula],
        search: Callable[[str, str, int | None], Sequence[Any]],
        *,
        start: float,
        end: float,
    ) -> None:
        """
        Args:
            fetched: id -> series, in the order of the queries.
            search: (search expression, statistic, period in s or None) -> series found.
            start, end: wall seconds that filled series cover, [start, end).
        """
        self._fetched = fetched
        self._formulas = formulas
        self._search = search
        self._start = start
        self._end = end
        self._period_s: int | None = None
        self._done: dict[str, Any] = {}
        self._running: list[str] = []
        self._work = 0
        self._nested = 0

    def _failed(self, reason: str) -> Any:
        """The value of what can't be computed, or the error for it."""
        raise NotImplementedError

    def _number(self, value: float) -> Any:
        raise NotImplementedError

    def _points(self, value: Any) -> int:
        """The number of datapoints of a value."""
        raise NotImplementedError

    def _several(self, value: Any) -> list[Any]:
        """The series of a value that is to have some."""
        raise NotImplementedError

    def _combine(self, sign: str, left: Any, right: Any) -> Any:
        raise NotImplementedError

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Any:
        raise NotImplementedError

    def _value_of(self, query_id: str) -> Any:
        if query_id in self._fetched:
            return self._fetched[query_id]
        if query_id in self._done:
            return self._done[query_id]
        formula = self._formulas.get(query_id)
        if formula is None:
            return self._failed(f"{query_id!r} is neither a query's Id nor a known word")
        if query_id in self._running:
            circle = " -> ".join([*self._running, query_id])
            return self._failed(f"{circle} refers to itself")
        if len(self._running) >= _REFERENCES_MAX:
            most = _REFERENCES_MAX
            return self._failed(f"more than {most} queries refer to one another in a row")
        self._running.append(query_id)
        period_before, self._period_s = self._period_s, formula.period_s
        self._done[query_id] = self._evaluate(formula.tree)
        self._period_s = period_before
        self._running.pop()
        return self._done[query_id]

    def _evaluate(self, node: Node) -> Any:
        if self._nested >= NESTED_MAX:
            most = NESTED_MAX
            return self._failed(f"with the queries that it uses it is nested deeper than {most}")
        self._nested += 1
        value = self._evaluated(node)
        self._nested -= 1
        return value

    def _evaluated(self, node: Node) -> Any:
        match node:
            case Number(value):
                return self._number(value)
            case Name(value):
                return self._value_of(value)
            case Negation(operand):
                return self._combined("-", self._number(0.0), self._evaluate(operand))
            case Binary():
                return self._chain(node)
            case ListExpression(items):
                return self._listed(items)
            case FunctionCall(function, arguments):
                return self._call(function, arguments)
            case Text(value):
                return self._failed(f"the text {value!r} is not a value")
        raise AssertionError(node)

    def _chain(self, node: Node) -> Any:
        """A chain of operations, from the innermost on the left."""
        row: list[Binary] = []
        while isinstance(node, Binary):
            row.append(node)
            node = node.left
        value = self._evaluate(node)
        for one in reversed(row):
            value = self._combined(one.sign, value, self._evaluate(one.right))
        return value

    def _combined(self, sign: str, left: Any, right: Any) -> Any:
        counts = [len(value) for value in (left, right) if isinstance(value, list)]
        self._charge(max(self._points(left), self._points(right), 1, *counts))
        return self._combine(sign, left, right)

    def _listed(self, items: tuple[Node, ...]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            several = self._several(self._evaluate(item))
            self._charge(len(several))
            found += several
        return found

    def _metrics(self, arguments: tuple[Node, ...]) -> Any:
        part = ""
        if arguments:
            if not isinstance(arguments[0], Text):
                return self._failed("METRICS takes a part of the Ids in quotes")
            part = arguments[0].value
        self._charge(len(self._fetched))
        return [series for query_id, series in self._fetched.items() if part in query_id]

    def _searched(self, arguments: tuple[Node, ...]) -> Any:
        match arguments:
            case (Text(what), Text(statistic), Number(period_s)):
                found = self._search(what, statistic, int(period_s))
            case (Text(what), Text(statistic)):
                found = self._search(what, statistic, self._period_s)
            case _:
                return self._failed("SEARCH takes '<what>', '<statistic>' and a period in seconds")
        self._charge(len(found))
        return list(found)

    def _grid(self, period_s: int) -> range:
        """The seconds at which a filled series has datapoints."""
        first = int(self._start // period_s) * period_s
        return range(first, math.ceil(self._end), period_s)

    def _charge(self, count: int) -> None:
        """Counts the datapoints of a step before it is taken."""
        self._work += count + 1
        if self._work > WORK_MAX:
            raise too_large(self.over_limit)


class Evaluator(ExpressionWalk):
    """Evaluates formulas over fetched series."""

    over_limit = (
        f"Invalid metrics expression: the request computes more than {WORK_MAX} datapoints."
    )

    def series_of(self, query_id: str) -> list[TimeSeries]:
        """The series of a query; for a list, all of its series.

        Raises:
            CallerError: `expression-invalid`.
        """
        value = self._value_of(query_id)
        self._charge(points(value))  # the caller processes every datapoint
        if isinstance(value, float):
            raise invalid(f"{query_id!r} is a number where a time series is needed")
        return self._several(value)

    def _failed(self, reason: str) -> NoReturn:
        raise invalid(reason)

    def _number(self, value: float) -> float:
        return value

    def _points(self, value: Value) -> int:
        return points(value)

    def _several(self, value: Value) -> list[TimeSeries]:
        if isinstance(value, float):
            raise invalid("a list holds time series, not numbers")
        return value if isinstance(value, list) else [value]

    def _combine(self, sign: str, left: Value, right: Value) -> Value:
        return combine(sign, left, right)

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Value:
        special = _SPECIAL.get(function)
        if special is not None:
            least, most, run = special
            _check_count(function, arguments, least, most)
            self._charge(0)
            return run(self, arguments)
        _check_count(function, arguments, 1, 1)
        if function in _PER_POINT:
            return apply(_PER_POINT[function], self._argument(arguments))
        if function in REDUCTIONS:
            return reduce(REDUCTIONS[function], self._argument(arguments))
        if function in _OVER_TIME:
            over_time = _OVER_TIME[function]
            value = self._argument(arguments)
            if isinstance(value, float):
                raise invalid(f"{function} needs a time series")
            return (
                [over_time(item) for item in value] if isinstance(value, list) else over_time(value)
            )
        raise invalid(f"the function {function} is not supported")

    def _argument(self, arguments: tuple[Node, ...]) -> Value:
        """The only argument of a function that processes all its datapoints."""
        value: Value = self._evaluate(arguments[0])
        self._charge(points(value) + (len(value) if isinstance(value, list) else 0))
        return value

    def _if(self, arguments: tuple[Node, ...]) -> Value:
        condition = self._evaluate(arguments[0])
        chosen: Value = self._evaluate(arguments[1])
        other: Value = self._evaluate(arguments[2]) if len(arguments) == 3 else math.nan
        if isinstance(condition, list) or isinstance(chosen, list) or isinstance(other, list):
            raise invalid("IF takes single time series and numbers")
        if isinstance(condition, float):
            if condition and not math.isnan(condition):
                return chosen
            return other
        self._charge(points(condition))
        values = {at: _at(chosen if truth else other, at) for at, truth in condition.values.items()}
        return finite("", condition.period_s, values)

    def _fill(self, arguments: tuple[Node, ...]) -> Value:
        value = self._evaluate(arguments[0])
        if isinstance(value, float):
            raise invalid("FILL needs a time series")
        several = self._several(value)
        self._charge(sum(len(self._grid(item.period_s)) for item in several))
        filler = arguments[1]
        word = filler.value if isinstance(filler, Name) else ""
        other = math.nan if word in _FILLS else self._evaluate(filler)
        if isinstance(other, list):
            raise invalid("FILL takes a number, a time series, REPEAT or LINEAR")
        filled = [self._fill_one(item, _FILLS.get(word), other) for item in several]
        return filled if isinstance(value, list) else filled[0]

    def _fill_one(
        self, series: TimeSeries, fill: Fill | None, other: float | TimeSeries
    ) -> TimeSeries:
        known, grid = series.values, self._grid(series.period_s)
        if fill is not None:
            values = fill(known, grid)
        else:
            values = {at: known[at] if at in known else _at(other, at) for at in grid}
        return finite(series.label, series.period_s, values)

    def _time_series(self, arguments: tuple[Node, ...]) -> Value:
        value = self._evaluate(arguments[0])
        if not isinstance(value, float):
            raise invalid("TIME_SERIES takes a number")
        periods = [series.period_s for series in self._fetched.values()]
        period_s = self._period_s or min(periods, default=60)
        grid = self._grid(period_s)
        self._charge(len(grid))
        return finite("", period_s, dict.fromkeys(grid, value))

    def _metric_count(self, arguments: tuple[Node, ...]) -> Value:
        value = self._evaluate(arguments[0])
        return float(len(value)) if isinstance(value, list) else 1.0

    def _period(self, arguments: tuple[Node, ...]) -> Value:
        value = self._evaluate(arguments[0])
        if not isinstance(value, TimeSeries):
            raise invalid("PERIOD takes one time series")
        return float(value.period_s)

    def _pick(self, arguments: tuple[Node, ...], place: int) -> Value:
        value = self._evaluate(arguments[0])
        if not isinstance(value, list):
            raise invalid("FIRST and LAST take a list of time series")
        return value[place] if value else TimeSeries("", self._period_s or 60, {})

    def _grid(self, period_s: int) -> range:
        grid = super()._grid(period_s)
        if len(grid) > DATAPOINTS_MAX:
            raise invalid(f"filling {len(grid)} datapoints exceeds the limit of {DATAPOINTS_MAX}")
        return grid


#: A longer chain of references is a mistake; the limit also protects the stack.
_REFERENCES_MAX: Final = 20


def too_large(message: str) -> CallerError:
    return CallerError(
        TOO_LARGE, message, hint="Ask for fewer metrics, a longer Period or a shorter time."
    )


Fill = Callable[[Mapping[int, float], range], dict[int, float]]
_FILLS: Final[dict[str, Fill]] = {"REPEAT": repeated, "LINEAR": interpolated}


def _at(value: float | TimeSeries, at: int) -> float:
    return value if isinstance(value, float) else value.values.get(at, math.nan)


def _check_count(function: str, arguments: tuple[Node, ...], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise invalid(f"{function} takes {wanted} arguments, not {len(arguments)}")


REDUCTIONS: Final[dict[str, Callable[[list[float]], float]]] = {
    "SUM": math.fsum,
    "AVG": statistics.fmean,
    "MIN": min,
    "MAX": max,
    "STDDEV": deviation,
}
_PER_POINT: Final[dict[str, Callable[[float], float]]] = {
    "ABS": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "LOG": math.log,
    "LOG10": math.log10,
}
_OVER_TIME: Final[dict[str, Callable[[TimeSeries], TimeSeries]]] = {
    "DIFF": differences,
    "RATE": rates,
    "RUNNING_SUM": running_sum,
}
_Run = Callable[[Evaluator, tuple[Node, ...]], Value]
#: name -> least and most number of arguments, and the method that reads them.
_SPECIAL: Final[dict[str, tuple[int, int, _Run]]] = {
    "METRICS": (0, 1, Evaluator._metrics),
    "IF": (2, 3, Evaluator._if),
    "FILL": (2, 2, Evaluator._fill),
    "SEARCH": (2, 3, Evaluator._searched),
    "TIME_SERIES": (1, 1, Evaluator._time_series),
    "METRIC_COUNT": (1, 1, Evaluator._metric_count),
    "PERIOD": (1, 1, Evaluator._period),
    "FIRST": (1, 1, lambda evaluator, arguments: evaluator._pick(arguments, 0)),
    "LAST": (1, 1, lambda evaluator, arguments: evaluator._pick(arguments, -1)),
}
