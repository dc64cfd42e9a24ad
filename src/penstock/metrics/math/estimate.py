"""What the evaluation of formulas would cost, from the number of datapoints of their series.

`Evaluator` counts each step before it takes it. This file counts the same steps without taking any,
so a request beyond the limit is refused before a datapoint is read. A result is assumed to have as
many datapoints as possible. What can't be computed costs nothing here: the evaluator finds it and
reports the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.metrics.math.evaluate import NESTED_MAX, REDUCTIONS, WORK_MAX, Formula, too_large
from penstock.metrics.math.expression import (
    Binary,
    FunctionCall,
    ListExpression,
    Name,
    Negation,
    Node,
    Number,
    Text,
)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one series."""

    period_s: int
    points: int


#: The size of a value: None for a number, a tuple for a list of series.
Sizes = Size | tuple[Size, ...] | None

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
    return _Estimate(reads, formulas, found, start, end).work()


class _Estimate:
    def __init__(
        self,
        reads: Mapping[str, Size],
        formulas: Mapping[str, Formula],
        found: Found,
        start: float,
        end: float,
    ) -> None:
        self._reads = reads
        self._formulas = formulas
        self._found = found
        self._seconds = max(end - start, 0.0)
        self._done: dict[str, Sizes] = {}
        self._period_s: int | None = None
        self._nested = 0
        self._work = 0

    def work(self) -> int:
        for query_id in self._formulas:
            size = self._size_of(query_id)
            self._charge(_points(size))  # the caller processes every datapoint
        return self._work

    def _size_of(self, query_id: str) -> Sizes:
        if query_id in self._reads:
            return self._reads[query_id]
        formula = self._formulas.get(query_id)
        if formula is None:
            return None
        if query_id not in self._done:
            self._done[query_id] = None  # for a formula that refers to itself
            before, self._period_s = self._period_s, formula.period_s
            self._done[query_id] = self._size(formula.tree)
            self._period_s = before
        return self._done[query_id]

    def _size(self, node: Node) -> Sizes:
        if self._nested >= NESTED_MAX:
            return None
        self._nested += 1
        size = self._sized(node)
        self._nested -= 1
        return size

    def _sized(self, node: Node) -> Sizes:
        match node:
            case Name(value):
                return self._size_of(value)
            case Negation(operand):
                return self._combined(None, self._size(operand))
            case Binary():
                return self._chain(node)
            case ListExpression(items):
                return self._list(items)
            case FunctionCall(function, arguments):
                return self._call(function, arguments)
        return None

    def _chain(self, node: Node) -> Sizes:
        row: list[Binary] = []
        while isinstance(node, Binary):
            row.append(node)
            node = node.left
        size = self._size(node)
        for one in reversed(row):
            size = self._combined(size, self._size(one.right))
        return size

    def _list(self, items: tuple[Node, ...]) -> Sizes:
        sizes: list[Size] = []
        for item in items:
            size = _listed(self._size(item))
            self._charge(len(size))
            sizes += size
        return tuple(sizes)

    def _combined(self, left: Sizes, right: Sizes) -> Sizes:
        """The result of two series has the datapoints that both have."""
        several = max(len(_listed(left)), len(_listed(right)), 1)
        self._charge(max(_points(left), _points(right), several))
        if isinstance(right, tuple) or left is None:
            left, right = right, left
        if left is None or right is None or isinstance(right, tuple):
            return left
        if isinstance(left, tuple):
            return tuple(_common(one, right) for one in left)
        return _common(left, right)

    def _call(self, function: str, arguments: tuple[Node, ...]) -> Sizes:
        if function in ("METRICS", "SEARCH"):
            self._charge(0)
        if function == "METRICS":
            return self._metrics(arguments)
        if function == "SEARCH":
            return self._searched(arguments)
        sizes = [self._size(argument) for argument in arguments]
        first = sizes[0] if sizes else None
        self._charge(0)
        match function:
            case "FILL":
                return self._filled(first)
            case "TIME_SERIES":
                periods = [size.period_s for size in self._reads.values()]
                period_s = self._period_s or min(periods, default=60)
                return self._filled(Size(period_s, 0))
            case "IF":
                if first is None:
                    return max(sizes[1:], key=_points, default=None)
                self._charge(_points(first))
                return first
            case "METRIC_COUNT" | "PERIOD":
                return None
        if function in _AS_ONE:
            return max(_listed(first), key=lambda one: one.points, default=None)
        self._charge(_points(first) + len(_listed(first)))
        return self._reduced(first) if function in REDUCTIONS else first

    def _metrics(self, arguments: tuple[Node, ...]) -> Sizes:
        part = arguments[0].value if arguments and isinstance(arguments[0], Text) else ""
        self._charge(len(self._reads))
        return tuple(size for query_id, size in self._reads.items() if part in query_id)

    def _searched(self, arguments: tuple[Node, ...]) -> Sizes:
        match arguments:
            case (Text(what), Text(statistic), Number(period_s)):
                found = self._found(what, statistic, int(period_s))
            case (Text(what), Text(statistic)):
                found = self._found(what, statistic, self._period_s)
            case _:
                return None
        self._charge(len(found))
        return found

    def _filled(self, size: Sizes) -> Sizes:
        filled = tuple(Size(one.period_s, self._grid(one.period_s)) for one in _listed(size))
        self._charge(_points(filled))
        return filled if isinstance(size, tuple) else next(iter(filled), None)

    def _reduced(self, size: Sizes) -> Sizes:
        """The result over a list has the timestamps that any series has."""
        if not isinstance(size, tuple):
            return None
        finest_s = min((one.period_s for one in size), default=60)
        coarsest_s = max((one.period_s for one in size), default=60)
        return Size(coarsest_s, min(_points(size), self._grid(finest_s)))

    def _grid(self, period_s: int) -> int:
        return math.ceil(self._seconds / period_s) + 1

    def _charge(self, count: int) -> None:
        self._work += count + 1
        if self._work > WORK_MAX:
            raise too_large(f"The request computes more than {WORK_MAX:,} datapoints.")


def _listed(size: Sizes) -> tuple[Size, ...]:
    if isinstance(size, tuple):
        return size
    return () if size is None else (size,)


def _points(size: Sizes) -> int:
    return sum(one.points for one in _listed(size))


def _common(one: Size, other: Size) -> Size:
    return Size(max(one.period_s, other.period_s), min(one.points, other.points))
