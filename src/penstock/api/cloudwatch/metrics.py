"""ListMetrics: which metrics exist. GetMetricStatistics: the statistics of one, unit by unit."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from penstock.api.aws import Members, place_of, token_of
from penstock.api.cloudwatch.rules import (
    CloudWatchContext,
    dimensions_of,
    invalid_combination,
    invalid_value,
    period_fault,
    seconds,
)
from penstock.errors import CallerError
from penstock.metrics.series.reading import read_units
from penstock.metrics.series.series import DAY_S, HOUR_S, MetricName
from penstock.metrics.series.statistics import SIMPLE, Compute, StatisticSet, parse_statistic

DATAPOINTS_MAX: Final = 1440


async def get_metric_statistics(context: CloudWatchContext, params: Members) -> Members:
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


def _statistics(params: Members) -> tuple[list[str], dict[str, Compute]]:
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


PAGE_METRICS_MAX: Final = 500
_LISTED_FOR_S: Final = 14 * DAY_S
_RECENT_S: Final = {"PT3H": 3 * HOUR_S}


async def list_metrics(context: CloudWatchContext, params: Members) -> Members:
    """Metrics with a sample in the last two weeks that pass all filters, 500 a page."""
    place = place_of(params, code="InvalidParameterValue", fits=_is_place)
    kept_s = _RECENT_S.get(params.get("RecentlyActive") or "", _LISTED_FOR_S)
    found = [
        metric
        for metric in context.store.metrics(newest_since=context.clock.wall() - kept_s)
        if _passes(metric, params)
    ]
    first = bisect_right(found, _metric_at(place)) if place else 0
    page = found[first : first + PAGE_METRICS_MAX]
    result: dict[str, Any] = {
        "Metrics": [
            {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
            }
            for metric in page
        ]
    }
    if params.get("IncludeLinkedAccounts"):
        result["OwningAccounts"] = [context.account_id] * len(page)
    if first + PAGE_METRICS_MAX < len(found):
        result["NextToken"] = token_of(params, list(page[-1]))
    return result


def _passes(metric: MetricName, params: Members) -> bool:
    if params.get("Namespace") not in (None, metric.namespace):
        return False
    if params.get("MetricName") not in (None, metric.name):
        return False
    dimensions = dict(metric.dimensions)
    return all(
        wanted["Name"] in dimensions and wanted.get("Value") in (None, dimensions[wanted["Name"]])
        for wanted in params.get("Dimensions") or ()
    )


def _is_place(place: Any) -> bool:
    match place:
        case [str(), str(), [*pairs]]:
            return all(
                isinstance(pair, list) and [type(text) for text in pair] == [str, str]
                for pair in pairs
            )
    return False


def _metric_at(place: list[Any]) -> MetricName:
    namespace, name, dimensions = place
    return MetricName(namespace, name, tuple((key, value) for key, value in dimensions))
