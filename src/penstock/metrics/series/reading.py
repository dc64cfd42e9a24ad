"""Reads statistics of one metric from the store, in slices short enough for a shared event loop.

Fifteen days of percentiles are tens of thousands of sketches to unpack, and the same loop forwards
requests. So reading pauses after some hundred points.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from penstock.metrics.series.series import HOUR_S, MetricName, retention_of
from penstock.metrics.series.statistics import SIMPLE, StatisticSet
from penstock.metrics.series.store import MetricStore

T = TypeVar("T")

_POINTS_PER_SLICE: Final = 240
_FUTURE_S_MAX: Final = 2 * HOUR_S  # PutMetricData accepts data up to this far in the future


async def read_statistic(
    store: MetricStore,
    metric: MetricName,
    name: str,
    compute: Callable[[StatisticSet], T | None],
    *,
    start: float,
    end: float,
    period_s: int,
    unit: str | None,
    now: float,
) -> dict[int, T]:
    """Period start -> the computed value, oldest first. All units together unless `unit` is
    given."""
    values: dict[int, T] = {}
    distribution = name not in SIMPLE
    async for since, until in slices(start, end, period_s, now):
        found = store.read_merged(
            metric, since, until, period_s, unit=unit, distribution=distribution
        )
        for at, stats in found.items():
            value = compute(stats)
            if value is not None:
                values[at] = value
    return values


async def read_units(
    store: MetricStore,
    metric: MetricName,
    *,
    start: float,
    end: float,
    period_s: int,
    unit: str | None,
    now: float,
    distribution: bool,
) -> list[tuple[int, str, StatisticSet]]:
    """(period start, unit, samples) in order of time."""
    rows: list[tuple[int, str, StatisticSet]] = []
    async for since, until in slices(start, end, period_s, now):
        found = store.read(metric, since, until, period_s, unit=unit, distribution=distribution)
        rows += [(at, name, stats) for name, sets in found.items() for at, stats in sets.items()]
    return sorted(rows, key=lambda row: row[:2])


async def slices(
    start: float, end: float, period_s: int, now: float
) -> AsyncIterator[tuple[int, float]]:
    """Parts of [start, end) at whole periods, without times that can have no data.

    The start is rounded down to a period, so that the period that contains it counts as a whole.
    """
    resolution_s, kept_s = retention_of(period_s)
    first = max(start, now - kept_s - resolution_s)
    since = int(first // period_s) * period_s
    last = min(end, now + _FUTURE_S_MAX + period_s)
    step_s = max(1, _POINTS_PER_SLICE * resolution_s // period_s) * period_s
    while since < last:
        yield since, min(since + step_s, math.ceil(last))
        since += step_s
        await asyncio.sleep(0)
