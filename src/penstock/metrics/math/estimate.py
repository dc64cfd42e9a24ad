"""What the evaluation of formulas would cost, from the number of datapoints of their series.

`Evaluator` counts each step before it takes it. This file counts the same steps without taking any,
so a request beyond the limit is refused before a datapoint is read. A result is assumed to have as
many datapoints as possible. What can't be computed costs nothing here: the evaluator finds it and
reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.metrics.math.evaluate import REDUCTIONS, WORK_MAX, ExpressionWalk, Formula
from penstock.metrics.math.expression import Node


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one series."""

    period_s: int
    points: int


#: The size of a value: None for a number, several for a list of series.
Sizes = Size | list[Size] | None

#: (search expression, statistic, period in s or None) -> sizes of the series that it finds
Found = Callable[[str, str, int | None], tuple[Size, ...]]

_AS_ONE: Final = ("FIRST", "LAST")


def work_of(
    reads: Mapping[str, Size],
    formulas: Mapping[str, Formula],
    found: Found,
    *,
    start: float,
    end: float,
) -> int:
    """The largest number of datapoints that all formulas together process.

    Args:
        reads: id -> size of a series that is read, in the order of the queries.
        start, end: wall seconds that filled series cover, [start, end).

    Raises:
        CallerError: `query-too-large`, as soon as it is more than `WORK_MAX`.
    """
    return _Estimate(reads, formulas, found, start=start, end=end).work()


class _Estimate(ExpressionWalk):
    over_limit = f"The request computes more than {WORK_MAX:,} datapoints."

    def work(self) -> int:
        for query_id in self._formulas:
            size = self._value_of(query_id)
            self._charge(self._points(size))  # the caller processes every datapoint
        return self._work

    def _failed(self, reason: str) -> None:
        return None

    def _number(self, value: float) -> None:
        return None

    def _points(self, value: Sizes) -> int:
        return sum(one.points for one in self._several(value))

    def _several(self, value: Sizes) -> list[Size]:
        if isinstance(value, list):
            return value
        return [] if value is None else [value]

    def _combine(self, sign: str, left: Sizes, right: Sizes) -> Sizes:
        """The result of two series has the datapoints that both have."""
        if isinstance(right, list) or left is None:
            left, right = right, left
        if left is None or right is None or isinstance(right, list):
            return left
        if isinstance(left, list):
            return [_common(one, right) for one in left]
        return _common(left, right)

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Any:
        self._charge(0)
        if function == "METRICS":
            return self._metrics(arguments)
        if function == "SEARCH":
            return self._searched(arguments)
        sizes = [self._evaluate(argument) for argument in arguments]
        first = sizes[0] if sizes else None
        match function:
            case "FILL":
                return self._filled(first)
            case "TIME_SERIES":
                periods = [size.period_s for size in self._fetched.values()]
                period_s = self._period_s or min(periods, default=60)
                return self._filled(Size(period_s, 0))
            case "IF":
                if first is None:
                    return max(sizes[1:], key=self._points, default=None)
                self._charge(self._points(first))
                return first
            case "METRIC_COUNT" | "PERIOD":
                return None
        if function in _AS_ONE:
            return max(self._several(first), key=lambda one: one.points, default=None)
        self._charge(self._points(first) + len(self._several(first)))
        return self._reduced(first) if function in REDUCTIONS else first

    def _filled(self, size: Sizes) -> Sizes:
        filled = [Size(one.period_s, len(self._grid(one.period_s))) for one in self._several(size)]
        self._charge(self._points(filled))
        return filled if isinstance(size, list) else next(iter(filled), None)

    def _reduced(self, size: Sizes) -> Sizes:
        """The result over a list has the timestamps that any series has."""
        if not isinstance(size, list):
            return None
        finest_s = min((one.period_s for one in size), default=60)
        coarsest_s = max((one.period_s for one in size), default=60)
        return Size(coarsest_s, min(self._points(size), len(self._grid(finest_s))))


def _common(one: Size, other: Size) -> Size:
    return Size(max(one.period_s, other.period_s), min(one.points, other.points))
