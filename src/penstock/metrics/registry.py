"""The data plane's metrics: recorders in, CloudWatch series and Prometheus numbers out.

A process that serves requests has one registry. Where the store is in the same process, `collect`
is called each second and publishes every ten; a gateway process of its own calls `export` each
second instead, and whoever holds the store calls `merge` with what arrives. Both ways are the same
path, so concurrency is summed and percentiles are merged over processes before they are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.metrics.cost import Charge
from penstock.metrics.instances import InstanceSample, instance_metrics
from penstock.metrics.loop_lag import LoopLag
from penstock.metrics.model_metrics import ones_and_zeros
from penstock.metrics.model_registry import ModelRegistry
from penstock.metrics.recorder import VariantDelta, VariantRecorder
from penstock.metrics.series import MetricKey, metric_key
from penstock.metrics.statistics import StatisticSet
from penstock.metrics.store import MetricStore
from penstock.metrics.totals import VariantTotals, Window

NAMESPACE: Final = "AWS/SageMaker"
OWN_NAMESPACE: Final = "Penstock"  #: of metrics that AWS has no name for
EXPIRE_EVERY_S: Final = 60

VariantId = tuple[str, str]  #: (endpoint, variant)

_LOCAL: Final = ""  #: the source name of this process


class MetricRegistry:
    """All recorders of a process, and the totals of all processes that report to it."""

    def __init__(self, store: MetricStore | None = None, *, lag_s: float = 0.0) -> None:
        """
        Args:
            store: where series go; None in a process that only exports.
            lag_s: how long a window waits for the deltas of other processes.
        """
        self._store = store
        self._lag_s = lag_s
        self._recorders: dict[VariantId, VariantRecorder] = {}
        self._collected_at: float | None = None
        self._expired_at = 0.0
        self.totals: dict[VariantId, VariantTotals] = {}
        self.copies: dict[VariantId, dict[str, int]] = {}  #: state -> copies
        #: (component, part) -> s until its last copy was ready
        self.ready_s: dict[VariantId, dict[tuple[str, str], float]] = {}
        self.instances: dict[str, InstanceSample] = {}  #: the latest of each
        self.models = ModelRegistry(store)  #: target models of multi-model variants
        self.loop_lag = LoopLag()  #: of this process's loop; whoever runs the loop starts it

    def recorder(self, endpoint: str, variant: str) -> VariantRecorder:
        """The recorder of a variant, made on first use. Keep it: looking it up is not free."""
        found = self._recorders.get((endpoint, variant))
        if found is None:
            found = self._recorders[endpoint, variant] = VariantRecorder(endpoint, variant)
            self._totals_of((endpoint, variant))
        return found

    def remove(self, endpoint: str, variant: str) -> None:
        """The variant is gone: its gauges leave, its series stay in the store until they expire."""
        self._recorders.pop((endpoint, variant), None)
        self.totals.pop((endpoint, variant), None)
        self.copies.pop((endpoint, variant), None)
        self.ready_s.pop((endpoint, variant), None)
        self.models.remove((endpoint, variant))
        for instance_id, sample in list(self.instances.items()):
            if (sample.endpoint, sample.variant) == (endpoint, variant):
                del self.instances[instance_id]

    def set_copies(self, endpoint: str, variant: str, states: Mapping[str, int]) -> None:
        """How many copies the variant has in each state."""
        self.copies[endpoint, variant] = dict(states)

    def set_ready(
        self, endpoint: str, variant: str, ready_s: Mapping[tuple[str, str], float]
    ) -> None:
        """What its copies took to become ready, by component and part."""
        self.ready_s[endpoint, variant] = dict(ready_s)

    def set_instance_count(self, endpoint: str, variant: str, count: int) -> None:
        """How many instances share the variant's requests, for InvocationsPerInstance."""
        self._totals_of((endpoint, variant)).instance_count = count

    def add_instance_sample(self, sample: InstanceSample, now: float) -> None:
        """Publishes one measurement of an instance, taken at wall time `now`."""
        self.instances[sample.instance_id] = sample
        if self._store is not None:
            for key, value in instance_metrics(sample):
                self._store.put(key, now, StatisticSet.of(value), now=now)

    def add_models(
        self,
        endpoint: str,
        variant: str,
        instance_id: str,
        told: dict[str, dict[str, Any]],
        now: float,
    ) -> None:
        """What a host of target models told at wall time `now`, see `ModelRegistry.add`."""
        variant_id = endpoint, variant
        known = variant_id in self.totals
        self.models.add(variant_id, instance_id, told, now=now, known=known)

    def busy_cores(self) -> dict[str, float]:
        """Instance -> cores that it kept busy on average before its last sample, where known."""
        return {
            instance_id: sample.cpu_percent / 100.0
            for instance_id, sample in self.instances.items()
            if sample.cpu_percent is not None
        }

    def add_charges(self, charges: Iterable[Charge], now: float) -> None:
        """Divides what instances cost among what their variants answered, and publishes both."""
        by_variant: dict[VariantId, list[Charge]] = {}
        for one in charges:
            by_variant.setdefault((one.endpoint, one.variant), []).append(one)
        for variant_id, of_variant in by_variant.items():
            # A variant that is gone is charged a last time and not brought back.
            totals = self.totals.get(variant_id) or VariantTotals()
            settled = totals.cost.settle(
                of_variant, answers=totals.answers, tokens=totals.tokens, now=now
            )
            if self._store is None:
                continue
            for name, source, stats in settled:
                key = _cost_key(variant_id, name, source)
                self._store.put(key, now, stats, now=now)

    def costs(self) -> list[dict[str, Any]]:
        """What each variant has cost since the start, and each answer in the last hour; for JSON.

        Values per answer are None where there was none.
        """
        return [
            {
                "endpoint": endpoint,
                "variant": variant,
                "dollars": totals.cost.dollars,
                "joules": dict(totals.cost.joules),
                **totals.cost.recent()._asdict(),
            }
            for (endpoint, variant), totals in self.totals.items()
        ]

    def remove_instance(self, instance_id: str) -> None:
        self.instances.pop(instance_id, None)

    def drain(self) -> None:
        """Moves buffered durations into sketches; optional, smooths the cost of `collect`."""
        for recorder in self._recorders.values():
            recorder.drain()

    def in_flight(self, endpoint: str, variant: str) -> int:
        """Requests in flight now: exact for this process, as last reported for the others."""
        totals = self.totals.get((endpoint, variant))
        recorder = self._recorders.get((endpoint, variant))
        remote = sum(totals.in_flight.values()) if totals is not None else 0
        return remote + (recorder.in_flight if recorder is not None else 0)

    def collect(self, now: float) -> None:
        """Samples, adds up, and publishes what is due. Call it each second with the wall time."""
        since = self._since(now)
        for variant_id, recorder in self._recorders.items():
            recorder.sample(now)
            self._totals_of(variant_id).add(recorder.take(), since=since)
        for variant_id, totals in self.totals.items():
            for start, window in totals.take_due(now - self._lag_s):
                if self._store is not None:
                    _publish(self._store, variant_id, start, window, now)
        self.models.collect(now - self._lag_s)
        if self._store is not None and abs(now - self._expired_at) >= EXPIRE_EVERY_S:
            self._expired_at = now
            self._store.expire(now)

    def export(self, now: float) -> bytes:
        """Samples, and hands over all since the last export, for another process's `merge`."""
        since = self._since(now)
        variants = []
        for (endpoint, variant), recorder in self._recorders.items():
            recorder.sample(now)
            variants.append([endpoint, variant, recorder.in_flight, recorder.take().to_dict()])
        return orjson.dumps({"since": since, "variants": variants})

    def merge(self, data: bytes, source: str) -> None:
        """Adds what the process named `source` exported; call it in the order of arrival.

        Raises:
            CallerError: `metrics-delta-unreadable`; nothing of the delta was added.
        """
        try:
            since, rows = _parse_export(data)
        except (ValueError, KeyError, TypeError, IndexError, CallerError) as error:
            raise CallerError(
                "metrics-delta-unreadable", f"Metrics from {source!r} can't be read: {error}."
            ) from error
        for variant_id, in_flight, delta in rows:
            totals = self._totals_of(variant_id)
            totals.in_flight[source or "remote"] = in_flight
            totals.add(delta, since=since)

    def forget(self, source: str) -> None:
        """The process is gone, and with it the requests it had in flight."""
        for totals in self.totals.values():
            totals.in_flight.pop(source, None)

    def _since(self, now: float) -> float:
        """When the counts being taken began: what ran up to the turn of a window belongs to it."""
        since = now if self._collected_at is None else min(self._collected_at, now)
        self._collected_at = now
        return since

    def _totals_of(self, variant_id: VariantId) -> VariantTotals:
        totals = self.totals.get(variant_id)
        if totals is None:
            totals = self.totals[variant_id] = VariantTotals()
        return totals


def _parse_export(data: bytes) -> tuple[float, list[tuple[VariantId, int, VariantDelta]]]:
    fields: dict[str, Any] = orjson.loads(data)
    rows = [
        ((str(endpoint), str(variant)), int(in_flight), VariantDelta.from_dict(delta))
        for endpoint, variant, in_flight, delta in fields["variants"]
    ]
    return float(fields["since"]), rows


def _publish(
    store: MetricStore, variant_id: VariantId, start: int, window: Window, now: float
) -> None:
    """Writes one window into the store, at its start; each concurrency sample at its own second."""
    concurrency = _key(variant_id, "ConcurrentRequestsPerModel")
    for second, in_flight in sorted(window.concurrency.items()):
        sample = StatisticSet.of(in_flight)
        store.put(concurrency, second, sample, now=now, high_resolution=True)
    for name, unit, stats in _window_metrics(window):
        key = _key(variant_id, name, unit)
        store.put(key, start, stats, now=now, high_resolution=True)


def _window_metrics(window: Window) -> list[tuple[str, str, StatisticSet]]:
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
    found.append(("InvocationsPerInstance", "None", window.per_instance))
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


def _cost_key(variant_id: VariantId, name: str, source: str) -> MetricKey:
    endpoint, variant = variant_id
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    return metric_key(OWN_NAMESPACE, name, dimensions | ({"Source": source} if source else {}))


def _key(variant_id: VariantId, name: str, unit: str = "None") -> MetricKey:
    endpoint, variant = variant_id
    return metric_key(NAMESPACE, name, {"EndpointName": endpoint, "VariantName": variant}, unit)
