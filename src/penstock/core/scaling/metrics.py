"""Which metric a predefined type means, and the alarms of a target-tracking policy.

The alarms are ordinary ones: DescribeAlarms shows what drives a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.alarms.spec import BREACHING, MISSING, AlarmSpec, MetricQuery, MetricStat
from penstock.core.scaling.spec import AlarmPeriods, ComponentId, VariantId

_NAMESPACE: Final = "AWS/SageMaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predefined:
    """One PredefinedMetricType."""

    name: str  #: name of the metric
    stat: str
    of_component: bool  #: True: of a component; False: of a variant
    high_resolution: bool = False
    of_concurrency: bool = False


PREDEFINED: Final = {
    "SageMakerVariantInvocationsPerInstance": Predefined(
        name="InvocationsPerInstance", stat="Sum", of_component=False
    ),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": Predefined(
        name="ConcurrentRequestsPerModel",
        stat="Average",
        of_component=False,
        high_resolution=True,
        of_concurrency=True,
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": Predefined(
        name="InvocationsPerCopy", stat="Sum", of_component=True
    ),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": Predefined(
        name="ConcurrentRequestsPerCopy",
        stat="Average",
        of_component=True,
        high_resolution=True,
        of_concurrency=True,
    ),
}


def query_of(
    predefined: Predefined, resource: VariantId | ComponentId, periods: AlarmPeriods
) -> MetricQuery:
    """The metric of a resource; both must be of the same kind. A plain metric has no id."""
    dimensions: tuple[tuple[str, str], ...]
    if isinstance(resource, VariantId):
        dimensions = (("EndpointName", resource.endpoint), ("VariantName", resource.variant))
    else:
        dimensions = (("InferenceComponentName", resource.component),)
    stat = MetricStat(
        namespace=_NAMESPACE,
        name=predefined.name,
        dimensions=dimensions,
        period_s=period_of(periods, high_resolution=predefined.high_resolution),
        stat=predefined.stat,
    )
    return MetricQuery(id="", stat=stat)


def period_of(periods: AlarmPeriods, *, high_resolution: bool) -> int:
    return periods.high_resolution_s if high_resolution else periods.standard_s


def tracking_alarms(
    *,
    resource_id: str,
    policy_arn: str,
    target_value: float,
    queries: tuple[MetricQuery, ...],
    high_resolution: bool,
    counts: bool,
    periods: AlarmPeriods,
    ids: tuple[str, str],
) -> tuple[AlarmSpec, AlarmSpec]:
    """AlarmHigh and AlarmLow of a policy, named as Application Auto Scaling names them.

    Args:
        counts: its metric counts requests, so no datapoint means no request: the low alarm goes on
            when nobody calls, and the policy checks whether that is so.
        ids: two unique ids, one for each alarm.
    """
    period_s = period_of(periods, high_resolution=high_resolution)
    times = (
        (periods.high_resolution_high, periods.high_resolution_low)
        if high_resolution
        else (periods.standard_high, periods.standard_low)
    )

    def alarm(which: int, kind: str, comparison: str, threshold: float, missing: str) -> AlarmSpec:
        return AlarmSpec(
            name=f"TargetTracking-{resource_id}-{kind}-{ids[which]}",
            queries=queries,
            period_s=period_s,
            evaluation_periods=times[which],
            datapoints_to_alarm=times[which],
            threshold=threshold,
            comparison=comparison,
            treat_missing_data=missing,
            description=(
                "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy"
                f" {policy_arn}:createdBy/{ids[which]}."
            ),
        )

    low = periods.low_share * target_value
    return (
        alarm(0, "AlarmHigh", "GreaterThanThreshold", target_value, MISSING),
        alarm(1, "AlarmLow", "LessThanThreshold", low, BREACHING if counts else MISSING),
    )
