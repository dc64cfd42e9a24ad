"""Names of statistics (`Average`, `p99.9`, `tm95`, `TM(10%:90%)`, `PR(:300)`) and their meaning.

Both are CloudWatch's ("CloudWatch statistics definitions" in its user guide). Everything but the
five simple ones needs the distribution and gives None where it is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

from penstock.errors import CallerError
from penstock.metrics.series.sketch import RELATIVE_ERROR
from penstock.metrics.series.statistics import StatisticSet

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
        return _trimmed(match[1], _Bound(0.0, 0.0), _Bound(_share(match[2], name), None))
    if name.upper() == "IQM":
        return _trimmed("TM", _Bound(0.25, None), _Bound(0.75, None))
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
    return _trimmed(kind, *bounds)


class _Bound:
    """One end of a range: a share of the samples (0 to 1), or a value when it is not None."""

    __slots__ = ("share", "value")

    def __init__(self, share: float, value: float | None) -> None:
        self.share = share
        self.value = value


def _trimmed(kind: str, low: _Bound, high: _Bound) -> Compute:
    return partial(_compute_trimmed, kind.upper(), low, high)


def _compute_trimmed(kind: str, low: _Bound, high: _Bound, stats: StatisticSet) -> float | None:
    bins = list(stats.bins())
    if not bins:
        return None
    if high.value is None:
        kept, cut_low, cut_high = _keep_ranks(bins, low.share, high.share)
    else:
        # A bin stands up to 1 % beside its samples: one that may hold the bound lies within it.
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
    """The part of each bin between two shares of all samples, and how many lie outside."""
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
