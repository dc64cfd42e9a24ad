"""ListMetrics: which metrics exist."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.rules import decode_token, encode_token
from penstock.metrics.series.series import DAY_S, HOUR_S, MetricName

PAGE_METRICS_MAX: Final = 500
_LISTED_FOR_S: Final = 14 * DAY_S
_RECENT_S: Final = {"PT3H": 3 * HOUR_S}


async def list_metrics(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """Metrics with a sample in the last two weeks that pass all filters, 500 a page."""
    place = decode_token(params, code="InvalidParameterValue", fits=_is_place)
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
        result["NextToken"] = encode_token(params, list(page[-1]))
    return result


def _passes(metric: MetricName, params: dict[str, Any]) -> bool:
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
