"""GetMetricStatistics: the statistics of one metric, unit by unit."""

from __future__ import annotations

from typing import Any, Final

from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.rules import (
    dimensions_of,
    invalid_combination,
    invalid_value,
    period_fault,
    seconds,
)
from penstock.errors import CallerError
from penstock.metrics.series.reading import read_units
from penstock.metrics.series.series import MetricName
from penstock.metrics.series.statistics import SIMPLE, Compute, StatisticSet, parse_statistic

DATAPOINTS_MAX: Final = 1440


async def get_metric_statistics(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    """Label and datapoints, oldest first; each has its unit."""
    start, end = seconds(params["StartTime"]), seconds(params["EndTime"])
    period_s = params["Period"]
    if not int(start) < int(end):  # the service reads whole seconds
        raise invalid_value("The parameter StartTime must be less than the parameter EndTime.")
    if fault := period_fault(period_s):
        raise invalid_value(fault)
    asked = (end - start) / period_s
    if asked > DATAPOINTS_MAX:
        raise invalid_combination(
            f"You have requested up to {asked:,.0f} datapoints, which exceeds the limit of "
            f"{DATAPOINTS_MAX:,}. You may reduce the datapoints requested by increasing Period, "
            "or decreasing the time range."
        )
    simple, extended = _statistics(params)
    rows = await read_units(
        context.store,
        MetricName(
            params["Namespace"],
            params["MetricName"],
            dimensions_of(params.get("Dimensions"), "Dimensions"),
        ),
        start=start,
        end=end,
        period_s=period_s,
        unit=params.get("Unit"),
        now=context.clock.wall(),
        distribution=bool(extended),
    )
    datapoints = [_datapoint(at, unit, stats, simple, extended) for at, unit, stats in rows]
    return {
        "Label": params["MetricName"],
        "Datapoints": [datapoint for datapoint in datapoints if datapoint is not None],
    }


def _statistics(params: dict[str, Any]) -> tuple[list[str], dict[str, Compute]]:
    simple = params.get("Statistics") or []
    extended = params.get("ExtendedStatistics") or []
    if simple and extended:
        raise invalid_combination(
            "The parameters Statistics and ExtendedStatistics are mutually exclusive and you have "
            "specified both."
        )
    if not simple and not extended:
        raise invalid_combination("Must specify either Statistics or ExtendedStatistics")
    for name in simple:
        if name not in SIMPLE:
            raise invalid_value(f"The value {name} for parameter Statistics is not supported.")
    try:
        return simple, {name: parse_statistic(name) for name in extended}
    except CallerError as error:
        raise invalid_value(f"{error.message} {error.hint}") from error


def _datapoint(
    at: int, unit: str, stats: StatisticSet, simple: list[str], extended: dict[str, Compute]
) -> dict[str, Any] | None:
    """The datapoint; None where percentiles alone were requested and no distribution is stored."""
    datapoint: dict[str, Any] = {"Timestamp": float(at), "Unit": unit}
    if simple:
        return datapoint | {name: SIMPLE[name](stats) for name in simple}
    computed = {name: compute(stats) for name, compute in extended.items()}
    known = {name: value for name, value in computed.items() if value is not None}
    return datapoint | {"ExtendedStatistics": known} if known else None
