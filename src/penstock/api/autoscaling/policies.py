"""PutScalingPolicy, DescribeScalingPolicies, DeleteScalingPolicy.

It also reads and checks the two policy configurations: from AWS's members to the core's policies.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.api.autoscaling.context import (
    AutoscalingContext,
    Named,
    check_filters,
    invalid,
    named,
    not_found,
    page,
    passes,
    target_words,
)
from penstock.api.aws import Members
from penstock.api.refused_members import REFUSED
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.records import AlarmActions, AlarmRecord
from penstock.control.scaling import calls
from penstock.control.scaling.records import NoSuchPolicy, NoSuchTarget, PolicyRecord
from penstock.core.alarms.spec import AlarmSpec, MetricQuery, MetricStat
from penstock.core.scaling.metrics import PREDEFINED, query_of, tracking_alarms
from penstock.core.scaling.spec import (
    AVERAGE,
    COOLDOWN_S,
    EXACT,
    PERCENT,
    POLICY_TYPES,
    STEP_SCALING,
    AlarmPeriods,
    ComponentId,
    Policy,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)
from penstock.core.scaling.step import fault_of
from penstock.errors import CallerError
from penstock.metrics.math.expression import parse_expression
from penstock.metrics.series.statistics import parse_statistic

_COOLDOWN_S_MAX: Final = 86_400 * 7
_QUERIES_MAX: Final = 10  #: Application Auto Scaling's own limit
_TARGET_MAX: Final = 2.0**360
#: Our metrics that count requests, by Sum: without a datapoint there was no request.
_COUNTS: Final = frozenset({"Invocations", "InvocationsPerInstance", "InvocationsPerCopy"})
_NAMESPACE: Final = "AWS/SageMaker"


def step_policy(name: str, arn: str, given: dict[str, Any]) -> StepPolicy:
    """A StepScaling policy from its members. Raises ValidationException."""
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
    context: AutoscalingContext, name: str, arn: str, given: dict[str, Any], target: Named
) -> tuple[TrackingPolicy, Sequence[AlarmSpec]]:
    """A target-tracking policy from its members, and the alarms that drive it.

    Raises ValidationException.
    """
    periods = context.periods
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
    return policy, tracking_alarms(
        resource_id=target.resource_id,
        policy_arn=arn,
        target_value=policy.target_value,
        queries=queries,
        high_resolution=high_resolution,
        counts=counts,  # without a datapoint there was no request
        periods=periods,
        ids=(context.new_id(), context.new_id()),
    )


def customized_queries(given: dict[str, Any], periods: AlarmPeriods) -> tuple[MetricQuery, ...]:
    """The queries of one plain metric, or of metric math. Raises ValidationException."""
    rows = given.get("Metrics")
    members = ("MetricName", "Namespace", "Statistic")
    if rows:
        if any(given.get(name) for name in (*members, "Dimensions", "Unit")):
            raise invalid("Metrics can't be combined with the members of a single metric")
        return _math(rows, periods)
    for name in members:
        if not given.get(name):
            raise invalid(f"{name} is required in a customized metric specification")
    stat = _metric_stat(given, given["Statistic"], given.get("Unit"), periods)
    return (MetricQuery(id="", stat=stat),)


def _metric_stat(
    metric: dict[str, Any], statistic: str, unit: str | None, periods: AlarmPeriods
) -> MetricStat:
    dimensions = {one["Name"]: one["Value"] for one in metric.get("Dimensions") or ()}
    return MetricStat(
        namespace=metric["Namespace"],
        name=metric["MetricName"],
        dimensions=tuple(sorted(dimensions.items())),
        period_s=periods.standard_s,
        stat=statistic,
        unit=unit,
    )


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
    found = _metric_stat(metric, stat["Stat"], stat.get("Unit"), periods)
    return MetricQuery(id=row["Id"], label=label, return_data=returns, stat=found)


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


_CONFIGURATION: Final = {
    kind: f"{kind.removesuffix('Scaling')}ScalingPolicyConfiguration" for kind in POLICY_TYPES
}


async def put_scaling_policy(context: AutoscalingContext, params: Members) -> Members:
    target, name = named(params), params["PolicyName"]
    before = await context.call(params, calls.policy_of, target.resource_id, target.dimension, name)
    kind = params.get("PolicyType") or (before.kind if before is not None else STEP_SCALING)
    given = _configuration(params, kind)
    arn = (
        before.policy.arn
        if before is not None
        else context.new_arn("scalingPolicy", target.resource_id, f"policyName/{name}")
    )
    alarms: list[AlarmRecord] = []
    policy: Policy
    if kind == STEP_SCALING:
        policy = step_policy(name, arn, given)
    else:
        policy, specs = tracking_policy(context, name, arn, given, target)
        # Ten expressions of the greatest length take a moment to read and compute.
        await asyncio.to_thread(_check_computable, specs)
        alarms = [_alarm(context, spec, arn) for spec in specs]
    now = context.clock.wall()
    record = PolicyRecord(
        resource_id=target.resource_id,
        dimension=target.dimension,
        policy=policy,
        kind=kind,
        request=given,
        created=now,
    )
    record = await context.call(params, calls.put_policy, record, alarms, now=now)
    context.changed()
    return {"PolicyARN": arn, "Alarms": _alarms(record)}


async def describe_scaling_policies(context: AutoscalingContext, params: Members) -> Members:
    check_filters(params)
    names = params.get("PolicyNames")
    records = [
        one
        for one in await context.database.call(calls.policies)
        if passes(params, one.resource_id, one.dimension)
        and (not names or one.policy.name in names or one.policy.arn in names)
    ]
    found, rest = page(params, records, _key)
    return {"ScalingPolicies": [_described(one) for one in found]} | rest


async def delete_scaling_policy(context: AutoscalingContext, params: Members) -> Members:
    try:
        await context.database.call(
            calls.delete_policy,
            params["ResourceId"],
            params["ScalableDimension"],
            params["PolicyName"],
            now=context.clock.wall(),
        )
    except (NoSuchTarget, NoSuchPolicy) as error:
        raise not_found(
            f"No scaling policy found for {target_words(params)}, policy name:"
            f" {params['PolicyName']}"
        ) from error
    context.changed()
    return {}


def _configuration(params: Members, kind: str) -> dict[str, Any]:
    """The configuration for the policy's type, the only one allowed. Raises ValidationException."""
    if kind not in _CONFIGURATION or params.get("PredictiveScalingPolicyConfiguration"):
        raise invalid(REFUSED["PutScalingPolicy.PredictiveScalingPolicyConfiguration"])
    for other, member in _CONFIGURATION.items():
        if other != kind and params.get(member) is not None:
            raise invalid(f"{member} can't be specified when policy type is {kind}")
    given = params.get(_CONFIGURATION[kind])
    if given is None:
        raise invalid(f"{_CONFIGURATION[kind]} is required when policy type is {kind}")
    return dict(given)


def _check_computable(specs: Iterable[AlarmSpec]) -> None:
    """Refuses policies whose alarms could not be computed. Raises ValidationException."""
    for spec in specs:
        try:
            Watched(spec)
        except CallerError as error:
            raise invalid(error.message) from error


def _alarm(context: AutoscalingContext, spec: AlarmSpec, policy_arn: str) -> AlarmRecord:
    return AlarmRecord(
        spec=spec,
        arn=f"arn:aws:cloudwatch:{context.region}:{context.account_id}:alarm:{spec.name}",
        actions=AlarmActions(alarm=(policy_arn,)),
        owner=policy_arn,
    )


def _key(record: PolicyRecord) -> str:
    return f"{record.dimension}|{record.resource_id.lower()}|{record.policy.name}"


def _alarms(record: PolicyRecord) -> list[dict[str, str]]:
    return [{"AlarmName": name, "AlarmARN": arn} for name, arn in record.alarms]


def _described(record: PolicyRecord) -> dict[str, Any]:
    return {
        "PolicyARN": record.policy.arn,
        "PolicyName": record.policy.name,
        "ServiceNamespace": "sagemaker",
        "ResourceId": record.resource_id,
        "ScalableDimension": record.dimension,
        "PolicyType": record.kind,
        _CONFIGURATION[record.kind]: record.request,
        "Alarms": _alarms(record),
        "CreationTime": record.created,
    }
