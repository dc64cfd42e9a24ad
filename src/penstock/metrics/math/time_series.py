"""Values over time, and the arithmetic of metric math on them.

A scalar is a float, a time series a `TimeSeries`; a list holds several. The rules are CloudWatch's:
arithmetic of two series keeps the timestamps that both have; an operation on a list applies to each
of its series; a result that is not a finite number (a division by zero) gives no datapoint.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.metrics.math.expression import invalid


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Datapoints in order of time."""

    label: str
    period_s: int
    values: dict[int, float]  #: wall second -> value


Value = float | TimeSeries | list[TimeSeries]


def _power(base: float, exponent: float) -> float:
    try:
        raised = base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.nan
    # A fractional power of a negative base is complex.
    return raised if isinstance(raised, float) else math.nan


def _divide(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


OPERATIONS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": _power,
    "<": lambda a, b: float(a < b),
    "<=": lambda a, b: float(a <= b),
    ">": lambda a, b: float(a > b),
    ">=": lambda a, b: float(a >= b),
    "==": lambda a, b: float(a == b),
    "!=": lambda a, b: float(a != b),
    "&&": lambda a, b: float(bool(a) and bool(b)),
    "||": lambda a, b: float(bool(a) or bool(b)),
}


def combine(sign: str, left: Value, right: Value) -> Value:
    """`left sign right` for any two values, except two lists."""
    operate = OPERATIONS[sign]
    if isinstance(left, list) and isinstance(right, list):
        raise invalid(f"{sign!r} can't combine two lists of time series")
    if isinstance(left, list):
        return [_combine_one(operate, item, right) for item in left]
    if isinstance(right, list):
        return [_combine_one(operate, left, item, label=item.label) for item in right]
    if isinstance(left, TimeSeries) or isinstance(right, TimeSeries):
        return _combine_one(operate, left, right)
    return operate(left, right)


def apply(function: Callable[[float], float], value: Value) -> Value:
    """`function` of each datapoint; where it can't be computed there is no datapoint."""
    if isinstance(value, list):
        return [_apply_one(function, item) for item in value]
    if isinstance(value, TimeSeries):
        return _apply_one(function, value)
    return _applied(function, value)


def deviation(values: Sequence[float]) -> float:
    """The population standard deviation, with `fsum` for accuracy. `statistics.pstdev` computes
    with fractions, which takes a hundred times as long."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def reduce(function: Callable[[list[float]], float], value: Value) -> Value:
    """Reduces a series to a scalar over its datapoints, and a list to a series, timestamp by
    timestamp.

    A series without a datapoint at a timestamp is left out there. A result too large for a number
    gives no datapoint.
    """
    if isinstance(value, TimeSeries):
        return _reduced(function, list(value.values.values())) if value.values else math.nan
    if isinstance(value, list):
        columns: dict[int, list[float]] = {}
        for item in value:
            for at, number in item.values.items():
                columns.setdefault(at, []).append(number)
        period_s = max((item.period_s for item in value), default=60)
        return finite("", period_s, {at: _reduced(function, columns[at]) for at in sorted(columns)})
    raise invalid("SUM, AVG, MIN, MAX and STDDEV need time series, not a number")


def points(value: Value) -> int:
    """The number of datapoints of a value."""
    if isinstance(value, TimeSeries):
        return len(value.values)
    return sum(len(item.values) for item in value) if isinstance(value, list) else 0


def finite(label: str, period_s: int, values: dict[int, float]) -> TimeSeries:
    """A series of the values that are finite numbers."""
    return TimeSeries(
        label, period_s, {at: value for at, value in values.items() if math.isfinite(value)}
    )


def repeated(values: Mapping[int, float], grid: range) -> dict[int, float]:
    """Each missing datapoint gets the value before it; those before the first stay missing."""
    filled, last = {}, math.nan
    for at in grid:
        last = values.get(at, last)
        filled[at] = last
    return filled


def interpolated(values: Mapping[int, float], grid: range) -> dict[int, float]:
    """Missing datapoints between two known ones lie on the line between them."""
    known = sorted(values)
    filled = {}
    for at in grid:
        if at in values:
            filled[at] = values[at]
            continue
        right = bisect_left(known, at)
        if 0 < right < len(known):
            before, after = known[right - 1], known[right]
            share = (at - before) / (after - before)
            filled[at] = values[before] + share * (values[after] - values[before])
    return filled


def differences(series: TimeSeries) -> TimeSeries:
    """Each datapoint minus the one before it."""
    times = sorted(series.values)
    values = {
        after: series.values[after] - series.values[before] for before, after in pairwise(times)
    }
    return finite(series.label, series.period_s, values)


def rates(series: TimeSeries) -> TimeSeries:
    """Change per second since the datapoint before."""
    times = sorted(series.values)
    values = {
        after: (series.values[after] - series.values[before]) / (after - before)
        for before, after in pairwise(times)
    }
    return finite(series.label, series.period_s, values)


def running_sum(series: TimeSeries) -> TimeSeries:
    """The sum of all datapoints so far."""
    total, values = 0.0, {}
    for at in sorted(series.values):
        total += series.values[at]
        values[at] = total
    return finite(series.label, series.period_s, values)


def _combine_one(
    operate: Callable[[float, float], float],
    left: float | TimeSeries | list[TimeSeries],
    right: float | TimeSeries | list[TimeSeries],
    *,
    label: str = "",
) -> TimeSeries:
    if isinstance(left, TimeSeries) and isinstance(right, TimeSeries):
        period_s = max(left.period_s, right.period_s)
        values = {
            at: operate(value, right.values[at])
            for at, value in left.values.items()
            if at in right.values
        }
        return finite(label or left.label, period_s, values)
    if isinstance(left, TimeSeries) and isinstance(right, float):
        values = {at: operate(value, right) for at, value in left.values.items()}
        return finite(label or left.label, left.period_s, _drop_if(right, values))
    assert isinstance(left, float)
    assert isinstance(right, TimeSeries)
    values = {at: operate(left, value) for at, value in right.values.items()}
    return finite(label or right.label, right.period_s, _drop_if(left, values))


def _drop_if(scalar: float, values: dict[int, float]) -> dict[int, float]:
    """Removes results of comparisons with NaN: they compute to 0, but are no datapoints."""
    return {} if math.isnan(scalar) else values


def _apply_one(function: Callable[[float], float], series: TimeSeries) -> TimeSeries:
    values = {at: _applied(function, value) for at, value in series.values.items()}
    return finite(series.label, series.period_s, values)


def _applied(function: Callable[[float], float], value: float) -> float:
    try:
        return float(function(value))
    except (ValueError, OverflowError):
        return math.nan


def _reduced(function: Callable[[list[float]], float], values: list[float]) -> float:
    try:
        return function(values)
    except (ValueError, OverflowError):
        return math.nan
