"""Reads the metrics of an alarm from the metric store: one datapoint per period.

Statistics and formulas are parsed once, when the alarm is loaded. A read of a metric that has no
data costs one dictionary lookup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.core.alarms.evaluate import evaluation_range
from penstock.core.alarms.spec import AlarmSpec, Datapoint, MetricStat
from penstock.errors import CallerError
from penstock.metrics.math.evaluate import Evaluator, Formula
from penstock.metrics.math.expression import calls_in, parse_expression
from penstock.metrics.math.time_series import TimeSeries
from penstock.metrics.series.reading import read_statistic
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.statistics import Compute, StatisticSet, parse_statistic
from penstock.metrics.series.store import MetricStore

_Found = dict[int, tuple[float, float]]  # period start -> value, samples


class Watched:
    """The metric or the metric math that one alarm watches, parsed."""

    def __init__(self, spec: AlarmSpec) -> None:
        """Raises CallerError for a statistic or an expression that can't be parsed or computed."""
        self._spec = spec
        self._computed: dict[str, tuple[MetricStat, Compute]] = {}
        self._formulas: dict[str, Formula] = {}
        for query in spec.queries:
            if query.stat is not None:
                self._computed[query.id] = (query.stat, parse_statistic(query.stat.stat))
                continue
            formula = Formula(parse_expression(query.expression), query.period_s)
            if any(calls_in(formula.tree, "SEARCH")):
                raise CallerError("expression-invalid", "SEARCH is not supported on Metric Alarms.")
            self._formulas[query.id] = formula
        self._returned = next(query.id for query in spec.queries if query.return_data)
        empty = {key: TimeSeries("", stat.period_s, {}) for key, (stat, _) in self._reads()}
        for key in self._formulas:
            self._evaluated(key, empty, (0, spec.period_s))

    async def datapoints(self, store: MetricStore, *, now: float) -> list[Datapoint]:
        """One datapoint per period of the evaluation range, the newest last."""
        start, end = evaluation_range(self._spec, now=now)
        if self._formulas:
            series = {
                key: TimeSeries(
                    stat.name,
                    stat.period_s,
                    {
                        at: value
                        for at, (value, _) in (
                            await self._read(store, stat, compute, start, end, now)
                        ).items()
                    },
                )
                for key, (stat, compute) in self._reads()
            }
            values = await asyncio.to_thread(self._evaluated, self._returned, series, (start, end))
            found: _Found = {at: (value, 0.0) for at, value in values.items()}
        else:
            stat, compute = self._computed[self._returned]
            found = await self._read(store, stat, compute, start, end, now)
        return [
            Datapoint(at, *found.get(at, (None, 0.0)))
            for at in range(start, end, self._spec.period_s)
        ]

    def _reads(self) -> list[tuple[str, tuple[MetricStat, Compute]]]:
        return list(self._computed.items())

    async def _read(
        self,
        store: MetricStore,
        stat: MetricStat,
        compute: Compute,
        start: int,
        end: int,
        now: float,
    ) -> _Found:
        def valued(stats: StatisticSet) -> tuple[float, float] | None:
            value = compute(stats)
            return None if value is None else (value, stats.count)

        return await read_statistic(
            store,
            MetricName(stat.namespace, stat.name, stat.dimensions),
            stat.stat,
            valued,
            start=start,
            end=end,
            period_s=stat.period_s,
            unit=stat.unit,
            now=now,
        )

    def _evaluated(
        self, query_id: str, series: Mapping[str, TimeSeries], time: tuple[int, int]
    ) -> dict[int, float]:
        start, end = time
        evaluator = Evaluator(series, self._formulas, _no_search, start=start, end=end)
        found = evaluator.series_of(query_id)
        if len(found) != 1:
            raise CallerError(
                "expression-invalid",
                f"The expression {query_id!r} returns {len(found)} time series; an alarm watches"
                " one.",
            )
        return found[0].values


def _no_search(_what: str, _statistic: str, _period_s: int | None) -> list[TimeSeries]:
    raise AssertionError("SEARCH was refused")
