"""The two policy configurations, read and checked: from AWS's members to policies of the core."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from penstock.api.autoscaling.context import Named, invalid
from penstock.core.alarms.spec import MetricQuery, MetricStat
from penstock.core.scaling.metrics import PREDEFINED, query_of
from penstock.core.scaling.resource import ComponentId
from penstock.core.scaling.spec import (
    AVERAGE,
    COOLDOWN_S,
    EXACT,
    PERCENT,
    AlarmPeriods,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)
from penstock.core.scaling.step import fault_of
from penstock.errors import CallerError
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.statistic_names import parse_statistic

_COOLDOWN_S_MAX: Final = 86_400 * 7
_QUERIES_MAX: Final = 10  #: Application Auto Scaling's
_TARGET_MAX: Final = 2.0**360
#: Metrics of ours that count requests, by Sum: no datapoint is no request.
_COUNTS: Final = frozenset({"Invocations", "InvocationsPerInstance", "InvocationsPerCopy"})
_NAMESPACE: Final = "AWS/SageMaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """A target-tracking policy, and what its alarms watch."""

    policy: TrackingPolicy
    queries: tuple[MetricQuery, ...]
    high_resolution: bool
    counts: bool  #: no datapoint is no request


def step_policy(name: str, arn: str, given: dict[str, Any]) -> StepPolicy:
    """Raises ValidationException."""
    kind = given.get("AdjustmentType")
    if kind is None:
        raise invalid("AdjustmentType is required for step scaling policies")
    steps = tuple(
        StepAdjustment(
            one.get("MetricIntervalLowerBound"),
            one.get("MetricIntervalUpperBound"),
            one["ScalingAdjustment"],
        )
        for one in given.get("StepAdjustments") or ()
    )
    fault = fault_of(steps)
    if not fault and kind == EXACT and any(one.adjustment < 0 for one in steps):
        fault = "ScalingAdjustment must not be negative for adjustment type ExactCapacity."
    magnitude = given.get("MinAdjustmentMagnitude")
    if not fault and magnitude is not None and (kind != PERCENT or magnitude < 0):
        fault = (
            "MinAdjustmentMagnitude is a number from 0 on, for adjustment type"
            " PercentChangeInCapacity only."
        )
    if fault:
        raise invalid(fault)
    return StepPolicy(
        name=name,
        arn=arn,
        adjustment_type=kind,
        steps=steps,
        magnitude_min=magnitude or 0,
        cooldown_s=_cooldown(given, "Cooldown"),
        aggregation=given.get("MetricAggregationType") or AVERAGE,
    )


def tracking_policy(
    name: str, arn: str, given: dict[str, Any], target: Named, periods: AlarmPeriods
) -> Tracked:
    """Raises ValidationException."""
    value = given["TargetValue"]
    if not math.isfinite(value) or not 0 < value <= _TARGET_MAX:
        raise invalid("TargetValue must be a number above 0")
    predefined = given.get("PredefinedMetricSpecification")
    customized = given.get("CustomizedMetricSpecification")
    if (predefined is None) == (customized is None):
        raise invalid(
            "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must be"
            " specified"
        )
    concurrency = high_resolution = counts = False
    queries: tuple[MetricQuery, ...]
    if predefined is not None:
        metric = PREDEFINED.get(predefined["PredefinedMetricType"])
        if metric is None or metric.of_component != isinstance(target.resource, ComponentId):
            raise invalid(
                f"Predefined metric type {predefined['PredefinedMetricType']} is not supported for"
                f" scalable dimension {target.dimension}"
            )
        queries = (query_of(metric, target.resource, periods),)
        high_resolution, concurrency = metric.high_resolution, metric.of_concurrency
        counts = metric.stat == "Sum"
    else:
        queries = customized_queries(customized or {}, periods)
        counts = all(_is_count(one) for one in queries)
    policy = TrackingPolicy(
        name=name,
        arn=arn,
        target_value=float(value),
        scale_out_cooldown_s=_cooldown(given, "ScaleOutCooldown"),
        scale_in_cooldown_s=_cooldown(given, "ScaleInCooldown"),
        disable_scale_in=bool(given.get("DisableScaleIn")),
        of_concurrency=concurrency,
    )
    return Tracked(policy=policy, queries=queries, high_resolution=high_resolution, counts=counts)


def customized_queries(given: dict[str, Any], periods: AlarmPeriods) -> tuple[MetricQuery, ...]:
    """One metric by its members, or metric math. Raises ValidationException."""
    rows = given.get("Metrics")
    members = ("MetricName", "Namespace", "Statistic")
    if rows:
        if any(given.get(name) for name in (*members, "Dimensions", "Unit")):
            raise invalid("Metrics can't be combined with the members of a single metric")
        return _math(rows, periods)
    for name in members:
        if not given.get(name):
            raise invalid(f"{name} is required in a customized metric specification")
    dimensions = {one["Name"]: one["Value"] for one in given.get("Dimensions") or ()}
    stat = MetricStat(
        namespace=given["Namespace"],
        name=given["MetricName"],
        dimensions=tuple(sorted(dimensions.items())),
        period_s=periods.standard_s,
        stat=given["Statistic"],
        unit=given.get("Unit"),
    )
    return (MetricQuery(id="", stat=stat),)


def _math(rows: list[dict[str, Any]], periods: AlarmPeriods) -> tuple[MetricQuery, ...]:
    if len(rows) > _QUERIES_MAX:
        raise invalid(f"Metrics can't have more than {_QUERIES_MAX} members")
    queries = tuple(_query(row, periods) for row in rows)
    if len({one.id for one in queries}) < len(queries):
        raise invalid("The Ids of Metrics must be unique")
    if sum(one.return_data for one in queries) != 1:
        raise invalid("Exactly one of Metrics must have ReturnData true")
    return queries


def _query(row: dict[str, Any], periods: AlarmPeriods) -> MetricQuery:
    stat, expression = row.get("MetricStat"), row.get("Expression")
    if (stat is None) == (expression is None):
        raise invalid(f"Exactly one of MetricStat and Expression must be in Metrics {row['Id']}")
    returned = row.get("ReturnData")
    returns = returned is None or bool(returned)
    label = row.get("Label") or ""
    try:
        if stat is None:
            parse_expression(str(expression))
            return MetricQuery(
                id=row["Id"], expression=str(expression), label=label, return_data=returns
            )
        parse_statistic(stat["Stat"])
    except CallerError as error:
        raise invalid(error.message) from error
    metric = stat["Metric"]
    for name in ("Namespace", "MetricName"):
        if not metric.get(name):
            raise invalid(f"{name} is required in Metrics {row['Id']}")
    dimensions = {one["Name"]: one["Value"] for one in metric.get("Dimensions") or ()}
    return MetricQuery(
        id=row["Id"],
        label=label,
        return_data=returns,
        stat=MetricStat(
            namespace=metric["Namespace"],
            name=metric["MetricName"],
            dimensions=tuple(sorted(dimensions.items())),
            period_s=periods.standard_s,
            stat=stat["Stat"],
            unit=stat.get("Unit"),
        ),
    )


def _is_count(query: MetricQuery) -> bool:
    stat = query.stat
    return (
        stat is not None
        and stat.namespace == _NAMESPACE
        and stat.name in _COUNTS
        and stat.stat == "Sum"
    )


def _cooldown(given: dict[str, Any], member: str) -> float:
    value = given.get(member)
    if value is None:
        return COOLDOWN_S
    if not 0 <= value <= _COOLDOWN_S_MAX:
        raise invalid(f"{member} must be between 0 and {_COOLDOWN_S_MAX} seconds")
    return float(value)
