"""One window of counts as CloudWatch's series of a variant or a component, and when to publish it.

A component's series come twice, as in SageMaker: by its name alone, and together with its endpoint
and variant. Concurrency is per instance or per copy: each second has as many samples as there are
instances or copies. So the average is the number in flight on one of them, and the sum that on all.

Single copies' own measurements give the utilization of components, and the enhanced metrics.

An endpoint's MetricsConfig sets the interval, as in SageMaker: MetricPublishFrequencyInSeconds
applies to utilization, and with enhanced metrics to invocations too. Concurrency is always
published every ten seconds, because scaling within seconds needs it. Without a MetricsConfig
everything is published every ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.metrics.counts.totals import WINDOW_S, MetricWindow
from penstock.metrics.models.model_registry import ones_and_zeros
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.instances import InstanceSample

NAMESPACE: Final = "AWS/SageMaker"


@dataclass(frozen=True, slots=True)
class PoolSeries:
    """The series of one variant, or of one component."""

    dimensions: tuple[dict[str, str], ...]  #: each metric is published once with each of these
    concurrency: str  #: name of the metric of requests in flight
    per_unit: str  #: name of the metric of requests per instance or copy
    units: int  #: instances or copies that share the requests, at least 1

    def put_concurrency(self, store: MetricStore, window: MetricWindow, now: float) -> None:
        """Writes each sample at its own second."""
        for dimensions in self.dimensions:
            key = metric_key(NAMESPACE, self.concurrency, dimensions)
            for second, in_flight in sorted(window.concurrency.items()):
                sample = StatisticSet()
                sample.add(in_flight / self.units, self.units)
                store.put(key, second, sample, now=now, high_resolution=True)

    def put(
        self,
        store: MetricStore,
        at: float,
        window: MetricWindow,
        now: float,
        *,
        high_resolution: bool,
    ) -> None:
        """Writes everything else of a window, as points of wall time `at`."""
        for dimensions in self.dimensions:
            for name, unit, stats in _window_metrics(window, self.per_unit):
                key = metric_key(NAMESPACE, name, dimensions, unit)
                store.put(key, at, stats, now=now, high_resolution=high_resolution)


def series_of(pool: tuple[str, str, str], units: int) -> PoolSeries:
    """`pool`: (endpoint, variant, component or "")."""
    endpoint, variant, component = pool
    of_variant, units = {"EndpointName": endpoint, "VariantName": variant}, max(1, units)
    if not component:
        names = ("ConcurrentRequestsPerModel", "InvocationsPerInstance")
        return PoolSeries((of_variant,), *names, units)
    alone = {"InferenceComponentName": component}
    names = ("ConcurrentRequestsPerCopy", "InvocationsPerCopy")
    return PoolSeries((alone, alone | of_variant), *names, units)


def series_of_config(endpoint: str, variant: str, config: str, units: int) -> PoolSeries:
    """Those of a variant's requests that copies of one endpoint configuration answered: while one
    replaces another, each has its own."""
    of_config = {"EndpointName": endpoint, "VariantName": variant, "EndpointConfigName": config}
    names = ("ConcurrentRequestsPerModel", "InvocationsPerInstance")
    return PoolSeries((of_config,), *names, max(1, units))


def _window_metrics(window: MetricWindow, per_unit: str) -> list[tuple[str, str, StatisticSet]]:
    invocations = window.invocations
    shares = (
        ("Invocation4XXErrors", window.errors_4xx),
        ("Invocation5XXErrors", window.errors_5xx),
        ("InvocationModelErrors", window.model_errors),
        ("NoCapacityInvocationFailures", window.no_capacity),
    )
    streamed = int(window.first_chunk_us.count)
    found = [
        (name, "None", ones_and_zeros(count, max(invocations, count))) for name, count in shares
    ]
    ones = ones_and_zeros(invocations, invocations)
    found.append(("Invocations", "None", ones))
    found.append((per_unit, "None", window.per_unit))
    if streamed:
        broken = ones_and_zeros(window.broken, max(streamed, window.broken))
        found.append(("MidStreamErrors", "None", broken))
    for name, unit, sketch in (
        ("ModelLatency", "Microseconds", window.model_latency_us),
        ("OverheadLatency", "Microseconds", window.overhead_us),
        ("FirstChunkLatency", "Microseconds", window.first_chunk_us),
        ("TimeToFirstToken", "Microseconds", window.first_token_us),
        ("TimePerOutputToken", "Microseconds", window.token_us),
        ("InputTokenCount", "Count", window.tokens_in),
        ("OutputTokenCount", "Count", window.tokens_out),
    ):
        found.append((name, unit, StatisticSet.from_sketch(sketch)))
    return [row for row in found if row[2].count]


COMPONENTS: Final = "/aws/sagemaker/InferenceComponents"


def component_metrics(sample: InstanceSample) -> list[tuple[MetricKey, float]]:
    """Datapoints of inference components: one per copy."""
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
    """Enhanced metrics: the requests of one instance, and of its copies by component."""
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
                found.append((metric_key(NAMESPACE, "Invocations", dimensions), ones))
            if concurrency:
                key = metric_key(NAMESPACE, concurrency, dimensions)
                found.append((key, StatisticSet.of(copy.in_flight)))
    return found


#: A point of a longer period is not of high resolution.
_HIGH_RESOLUTION_S: Final = 60


@dataclass(frozen=True, slots=True)
class Publishing:
    """How often the metrics of one variant are published."""

    utilization_s: int = 0  #: s per point; 0 = one point per measurement
    invocations_s: int = WINDOW_S
    by_instance: bool = False  #: invocations per instance are published too

    def point(self, at: float) -> tuple[float, bool]:
        """(the time of a measurement's point, whether it is of high resolution)."""
        if not self.utilization_s:
            return at, False
        return at // self.utilization_s * self.utilization_s, (
            self.utilization_s < _HIGH_RESOLUTION_S
        )

    def window(self, start: int) -> tuple[int, bool]:
        """(the time of the point of what ended in a window, whether it is of high resolution)."""
        length_s = self.invocations_s
        return start // length_s * length_s, length_s < _HIGH_RESOLUTION_S

    def window_end(self, start: int) -> int:
        """The wall second from which the window's point may be published: it is complete then."""
        return self.window(start)[0] + self.invocations_s


ALWAYS: Final = Publishing()


def publishing_of(publish_s: int, *, enhanced: bool) -> Publishing:
    """`publish_s`: MetricPublishFrequencyInSeconds; 0 = not set, which means a minute."""
    if not publish_s and not enhanced:
        return ALWAYS
    publish_s = publish_s or 60
    invocations_s = publish_s if enhanced else WINDOW_S
    return Publishing(publish_s, invocations_s, enhanced)
