"""An alarm as DescribeAlarms shows it."""

from __future__ import annotations

from typing import Any

from penstock.control.alarms.records import AlarmRecord
from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.metrics.series.statistic_names import SIMPLE


def metric_alarm(record: AlarmRecord) -> dict[str, Any]:
    """The members that the alarm has; those that its maker left out are left out."""
    spec = record.spec
    shown: dict[str, Any] = {
        "AlarmName": spec.name,
        "AlarmArn": record.arn,
        "AlarmDescription": spec.description,
        "AlarmConfigurationUpdatedTimestamp": record.configuration_updated,
        "ActionsEnabled": record.actions_enabled,
        "OKActions": list(record.actions.ok),
        "AlarmActions": list(record.actions.alarm),
        "InsufficientDataActions": list(record.actions.insufficient_data),
        "StateValue": record.state,
        "StateReason": record.state_reason,
        "StateUpdatedTimestamp": record.state_updated,
        "StateTransitionedTimestamp": record.state_updated,
        **_watched(spec.queries),
        "EvaluationPeriods": spec.evaluation_periods,
        "DatapointsToAlarm": spec.datapoints_to_alarm,
        "Threshold": spec.threshold,
        "ComparisonOperator": spec.comparison,
        "TreatMissingData": spec.treat_missing_data,
    }
    if record.state_reason_data:
        shown["StateReasonData"] = record.state_reason_data
    if spec.low_samples != "evaluate":
        shown["EvaluateLowSampleCountPercentile"] = spec.low_samples
    return {name: value for name, value in shown.items() if name not in record.omitted}


def plain_metric(record: AlarmRecord) -> MetricStat | None:
    """What an alarm without math watches."""
    first = record.spec.queries[0]
    return None if first.id else first.stat


def _watched(queries: tuple[MetricQuery, ...]) -> dict[str, Any]:
    stat = queries[0].stat
    if queries[0].id or stat is None:
        return {"Metrics": [_query(query) for query in queries]}
    return {
        "MetricName": stat.name,
        "Namespace": stat.namespace,
        "Statistic" if stat.stat in SIMPLE else "ExtendedStatistic": stat.stat,
        "Dimensions": _dimensions(stat),
        "Period": stat.period_s,
        **({"Unit": stat.unit} if stat.unit else {}),
    }


def _query(query: MetricQuery) -> dict[str, Any]:
    shown: dict[str, Any] = {"Id": query.id}
    stat = query.stat
    if stat is not None:
        shown["MetricStat"] = {
            "Metric": {
                "Namespace": stat.namespace,
                "MetricName": stat.name,
                "Dimensions": _dimensions(stat),
            },
            "Period": stat.period_s,
            "Stat": stat.stat,
            **({"Unit": stat.unit} if stat.unit else {}),
        }
    else:
        shown["Expression"] = query.expression
    if query.label:
        shown["Label"] = query.label
    if query.period_s is not None:
        shown["Period"] = query.period_s
    return shown | {"ReturnData": query.return_data}


def _dimensions(stat: MetricStat) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in stat.dimensions]
