"""Statistics of a set of samples, and the names of statistics with their meaning.

`StatisticSet` is CloudWatch's, with percentiles where they exist. A set of equal samples needs no
sketch, and most one-second points are such sets; the sketch is made at the first different value.
Statistics that came without their values (`StatisticValues` of PutMetricData) have no percentiles:
the set is then marked `opaque`, as in CloudWatch.

Names of statistics (`Average`, `p99.9`, `tm95`, `TM(10%:90%)`, `PR(:300)`) have CloudWatch's
meaning ("CloudWatch statistics definitions" in its user guide). All but the five simple ones need
the distribution and give None where it is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from penstock.errors import CallerError
from penstock.metrics.series.sketch import RELATIVE_ERROR, Sketch


class StatisticSet:
    """SampleCount, Sum, Minimum and Maximum of some samples, and their distribution if known.

    Attributes:
        count, total: number of samples (not always whole: callers may weigh) and their sum.
        minimum, maximum: `inf` and `-inf` while empty.
        sketch: the distribution; None while all samples are equal, or where it is unknown.
        opaque: True when the distribution is unknown.
    """

    __slots__ = ("count", "maximum", "minimum", "opaque", "sketch", "total")

    def __init__(self) -> None:
        self.count: float = 0
        self.total: float = 0.0
        self.minimum: float = math.inf
        self.maximum: float = -math.inf
        self.sketch: Sketch | None = None
        self.opaque = False

    @classmethod
    def of(cls, *values: float) -> StatisticSet:
        made = cls()
        for value in values:
            made.add(value)
        return made

    @classmethod
    def from_values(
        cls, count: float, total: float, minimum: float, maximum: float
    ) -> StatisticSet:
        """From statistics alone; opaque, unless all samples must be equal."""
        made = cls()
        made.count, made.total, made.minimum, made.maximum = count, total, minimum, maximum
        made.opaque = minimum != maximum
        return made

    @classmethod
    def from_sketch(cls, sketch: Sketch) -> StatisticSet:
        """Takes ownership of the sketch."""
        made = cls()
        made.count, made.total = sketch.count, sketch.total
        made.minimum, made.maximum = sketch.minimum, sketch.maximum
        made.sketch = None if sketch.minimum == sketch.maximum else sketch
        return made

    def add(self, value: float, count: float = 1) -> None:
        """Adds `value` (finite) `count` (> 0) times."""
        if self.count and not self.opaque and not self.minimum == value == self.maximum:
            self._own_sketch().add(value, count)
        self.count += count
        self.total += value * count
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def merge(self, other: StatisticSet) -> None:
        """Adds all of `other`, which stays as it is."""
        if not other.count:
            return
        self.opaque = self.opaque or other.opaque
        if self.opaque:
            self.sketch = None
        elif not self.count:
            self.sketch = other.sketch.copy() if other.sketch is not None else None
        elif other.sketch is not None:
            self._own_sketch().merge(other.sketch)
        elif not self.minimum == other.minimum == self.maximum:
            self._own_sketch().add(other.minimum, other.count)
        self.count += other.count
        self.total += other.total
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)

    def copy(self) -> StatisticSet:
        twin = StatisticSet()
        twin.merge(self)
        return twin

    @property
    def average(self) -> float:
        return self.total / self.count

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0 to 1) within 1 %; None when the distribution is unknown or empty."""
        if self.opaque or not self.count:
            return None
        return self.minimum if self.sketch is None else self.sketch.quantile(q)

    def bins(self) -> Iterator[tuple[float, float]]:
        """(value, count), sorted by value; empty if the distribution is unknown."""
        if self.sketch is not None:
            yield from self.sketch.bins()
        elif self.count and not self.opaque:
            yield self.minimum, self.count

    def _own_sketch(self) -> Sketch:
        if self.sketch is None:
            self.sketch = Sketch()
            if self.count:
                self.sketch.add(self.minimum, self.count)
        return self.sketch


Compute = Callable[[StatisticSet], float | None]

SIMPLE: dict[str, Compute] = {
    "SampleCount": lambda stats: stats.count,
    "Average": lambda stats: stats.average,
    "Sum": lambda stats: stats.total,
    "Minimum": lambda stats: stats.minimum,
    "Maximum": lambda stats: stats.maximum,
}

_PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d{1,10})?)", re.IGNORECASE)
_SHORT = re.compile(r"(tm|wm|tc|ts)(\d{1,3}(?:\.\d{1,10})?)", re.IGNORECASE)
_RANGE = re.compile(r"(TM|WM|TC|TS|PR)\(([^:()]*):([^:()]*)\)", re.IGNORECASE)
_NAMES_CACHED_MAX = 512
_by_name: dict[str, Compute] = dict(SIMPLE)


def parse_statistic(name: str) -> Compute:
    """The computation that `name` stands for.

    Raises:
        CallerError: `statistic-unknown`, with the forms that are allowed.
    """
    compute = _by_name.get(name)
    if compute is None:
        compute = _parse(name)
        if len(_by_name) >= _NAMES_CACHED_MAX:
            _by_name.clear()
            _by_name.update(SIMPLE)
        _by_name[name] = compute
    return compute


def _parse(name: str) -> Compute:
    if match := _PERCENTILE.fullmatch(name):
        share = _share(match[1], name)
        return lambda stats: stats.quantile(share)
    if match := _SHORT.fullmatch(name):
        high = _Bound(_share(match[2], name), None)
        return partial(_trimmed, match[1].upper(), _Bound(0.0, 0.0), high)
    if name.upper() == "IQM":
        return partial(_trimmed, "TM", _Bound(0.25, None), _Bound(0.75, None))
    if match := _RANGE.fullmatch(name):
        return _parse_range(match[1].upper(), match[2].strip(), match[3].strip(), name)
    raise _unknown(name)


def _parse_range(kind: str, low: str, high: str, name: str) -> Compute:
    if not low and not high:
        raise _unknown(name)
    percents = [text.endswith("%") for text in (low, high) if text]
    if len(set(percents)) > 1 or (kind == "PR" and percents[0]):
        raise _unknown(name)
    if percents[0]:
        bounds = (
            _Bound(_share(low[:-1], name) if low else 0.0, None),
            _Bound(_share(high[:-1], name) if high else 1.0, None),
        )
    else:
        bounds = (
            _Bound(0.0, _number(low, name) if low else -math.inf),
            _Bound(1.0, _number(high, name) if high else math.inf),
        )
    if low and high and _number(low.rstrip("%"), name) > _number(high.rstrip("%"), name):
        raise _unknown(name)
    return partial(_trimmed, kind, *bounds)


class _Bound(NamedTuple):
    """One end of a range: a share of the samples (0 to 1), or a value when it is not None."""

    share: float
    value: float | None


def _trimmed(kind: str, low: _Bound, high: _Bound, stats: StatisticSet) -> float | None:
    bins = list(stats.bins())
    if not bins:
        return None
    if high.value is None:
        kept, cut_low, cut_high = _keep_ranks(bins, low.share, high.share)
    else:
        # A bin is up to 1 % away from its samples: one that may contain the bound lies within it.
        below = -math.inf if low.value is None else _widened(low.value)
        above = _widened(high.value)
        kept = [(value, count) for value, count in bins if below < value <= above]
        cut_low = sum(count for value, count in bins if value <= below)
        cut_high = sum(count for value, count in bins if value > above)
    count = sum(count for _, count in kept)
    total = sum(value * count for value, count in kept)
    if kind == "TC":
        return count
    if kind == "PR":
        return 100.0 * count / stats.count
    if kind == "TS":
        return total
    if not count:
        return None
    if kind == "TM":
        return total / count
    edges = cut_low * kept[0][0] + cut_high * kept[-1][0]
    return (total + edges) / (count + cut_low + cut_high)


def _widened(bound: float) -> float:
    return bound + abs(bound) * RELATIVE_ERROR if math.isfinite(bound) else bound


def _keep_ranks(
    bins: list[tuple[float, float]], low: float, high: float
) -> tuple[list[tuple[float, float]], float, float]:
    """The part of each bin between two shares of all samples, and the numbers outside."""
    count_all = sum(count for _, count in bins)
    start, end = low * count_all, high * count_all
    kept, seen = [], 0.0
    for value, count in bins:
        inside = min(seen + count, end) - max(seen, start)
        if inside > 0:
            kept.append((value, inside))
        seen += count
    return kept, start, count_all - end


def _share(text: str, name: str) -> float:
    percent = _number(text, name)
    if not 0 <= percent <= 100:
        raise _unknown(name)
    return percent / 100


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _unknown(name) from None
    if not math.isfinite(number):
        raise _unknown(name)
    return number


def _unknown(name: str) -> CallerError:
    return CallerError(
        "statistic-unknown",
        f"The value {name[:100]!r} is not a statistic.",
        hint=f"Use one of {', '.join(SIMPLE)}, a percentile (p99.9), or tm, wm, tc, ts, PR, IQM.",
    )
