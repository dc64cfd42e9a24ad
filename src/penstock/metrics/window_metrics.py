"""One window of what was counted, as CloudWatch's series of a variant or of a component.

A component's series come twice, as in SageMaker: by its name alone, and together with its endpoint
and variant. Concurrency is per model (an instance) or per copy: each second has as many samples as
there are instances or copies, so that the average is what one of them has in flight and the sum
what all of them have together.
"""

from __future__ import annotations

from typing import Final

from penstock.metrics.model_metrics import ones_and_zeros
from penstock.metrics.series import metric_key
from penstock.metrics.statistics import StatisticSet
from penstock.metrics.store import MetricStore
from penstock.metrics.totals import Window

NAMESPACE: Final = "AWS/SageMaker"


def publish_variant(
    store: MetricStore,
    endpoint: str,
    variant: str,
    start: int,
    window: Window,
    instances: int,
    now: float,
) -> None:
    """Writes one window into the store, at its start; each concurrency sample at its own second."""
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    names = ("ConcurrentRequestsPerModel", "InvocationsPerInstance")
    _publish(store, dimensions, names, start, window, instances, now)


def publish_component(
    store: MetricStore,
    pool: tuple[str, str, str],
    start: int,
    window: Window,
    copies: int,
    now: float,
) -> None:
    """As `publish_variant`; `pool` is (endpoint, variant, component)."""
    endpoint, variant, component = pool
    names = ("ConcurrentRequestsPerCopy", "InvocationsPerCopy")
    alone = {"InferenceComponentName": component}
    for dimensions in (alone, alone | {"EndpointName": endpoint, "VariantName": variant}):
        _publish(store, dimensions, names, start, window, copies, now)


def _publish(
    store: MetricStore,
    dimensions: dict[str, str],
    names: tuple[str, str],
    start: int,
    window: Window,
    units: int,
    now: float,
) -> None:
    concurrency = metric_key(NAMESPACE, names[0], dimensions, "None")
    for second, in_flight in sorted(window.concurrency.items()):
        sample = StatisticSet()
        sample.add(in_flight / max(1, units), max(1, units))
        store.put(concurrency, second, sample, now=now, high_resolution=True)
    for name, unit, stats in _window_metrics(window, names[1]):
        key = metric_key(NAMESPACE, name, dimensions, unit)
        store.put(key, start, stats, now=now, high_resolution=True)


def _window_metrics(window: Window, per_unit: str) -> list[tuple[str, str, StatisticSet]]:
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
