"""What single copies say of themselves: utilization of components, and enhanced metrics."""

from __future__ import annotations

from typing import Final

from penstock.metrics.models.model_metrics import ones_and_zeros
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.utilization.instances import InstanceSample

COMPONENTS: Final = "/aws/sagemaker/InferenceComponents"
REQUESTS: Final = "AWS/SageMaker"


def component_metrics(sample: InstanceSample) -> list[tuple[MetricKey, float]]:
    """The datapoints of the copies of inference components: one of each copy."""
    found = []
    for copy in sample.copies:
        if not copy.component:
            continue
        alone = {"InferenceComponentName": copy.component}
        whole = alone | {"EndpointName": sample.endpoint, "VariantName": sample.variant}
        for name, value in (
            ("CPUUtilizationNormalized", copy.cpu_percent),
            ("MemoryUtilizationNormalized", copy.memory_percent),
        ):
            if value is not None:
                found += [
                    (metric_key(COMPONENTS, name, dimensions, "Percent"), value)
                    for dimensions in (alone, whole)
                ]
    return found


def request_metrics(sample: InstanceSample) -> list[tuple[MetricKey, StatisticSet]]:
    """Enhanced metrics: the requests of the instance by itself, and of its copies by component."""
    found: list[tuple[MetricKey, StatisticSet]] = []
    instance = {"InstanceId": sample.instance_id}
    variant = {"EndpointName": sample.endpoint, "VariantName": sample.variant} | instance
    for copy in sample.copies:
        parts = [(variant, "ConcurrentRequestsPerModel")]
        if copy.component:
            component = {"InferenceComponentName": copy.component} | instance
            parts = [(variant, ""), (component, "ConcurrentRequestsPerCopy")]
        for dimensions, concurrency in parts:
            if copy.invocations:
                ones = ones_and_zeros(copy.invocations, copy.invocations)
                found.append((metric_key(REQUESTS, "Invocations", dimensions), ones))
            if concurrency:
                key = metric_key(REQUESTS, concurrency, dimensions)
                found.append((key, StatisticSet.of(copy.in_flight)))
    return found
