"""The data plane's metrics: recorders in, CloudWatch series and Prometheus values out.

A process that serves requests has one registry. If the store is in the same process, `collect` is
called each second and publishes every ten. A separate gateway process calls `take_delta` each
second instead, and the process with the store calls `add_delta` with what arrives. Both ways share
their code, so concurrency is summed and percentiles are merged over processes before they are
published. The counts of a dead process stay; `forget` removes its gauges.

`keep` compares everything that is held with what still exists. Gauges of removed things leave at
once, their counts as `departures.py` says, after all that was counted is published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from penstock.metrics.counts.container_counts import ContainerRegistry
from penstock.metrics.counts.departures import Departures
from penstock.metrics.counts.recorder import (
    MetricDelta,
    PoolDelta,
    PoolId,
    VariantRecorder,
    decode,
    encode,
)
from penstock.metrics.counts.totals import WINDOW_S, VariantTotals
from penstock.metrics.counts.window_metrics import (
    ALWAYS,
    PoolSeries,
    Publishing,
    component_metrics,
    request_metrics,
    series_of,
    series_of_config,
)
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.item_failures import apart
from penstock.metrics.loop_lag import LagObserved, LoopLag
from penstock.metrics.models.model_registry import ModelRegistry
from penstock.metrics.series.series import MetricKey, metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.cost import Charge
from penstock.metrics.utilization.instances import CacheCounts, InstanceSample, instance_metrics

OWN_NAMESPACE: Final = "Penstock"  #: namespace of metrics that AWS has no name for
EXPIRE_EVERY_S: Final = 60

VariantId = tuple[str, str]  #: (endpoint, variant)
#: (endpoint, variant, component or "", endpoint configuration or "")
RecorderId = tuple[str, str, str, str]


class MetricRegistry:
    """All recorders of a process, and the totals of all processes that report to it."""

    def __init__(
        self, store: MetricStore | None = None, *, lag_s: float = 0.0, process: str = "gateway"
    ) -> None:
        """
        Args:
            store: where series go; None in a process that only reports to another.
            lag_s: how long a window waits for the deltas of other processes.
            process: this process's name among them.
        """
        self.process = process
        self._store = store
        self._lag_s = lag_s
        #: (*pool, endpoint configuration) -> recorder
        self._recorders: dict[RecorderId, VariantRecorder] = {}
        self._publishing: dict[VariantId, Publishing] = {}
        self._collected_at: float | None = None
        self._expired_at = 0.0
        #: totals of a variant with all its components
        self.totals: dict[VariantId, VariantTotals] = {}
        #: variant -> component -> totals; "" for requests that name none; only variants with
        #: components
        self.components: dict[VariantId, dict[str, VariantTotals]] = {}
        #: variant -> endpoint configuration -> totals that are not published yet
        self._configs: dict[VariantId, dict[str, VariantTotals]] = {}
        self.copies: dict[VariantId, dict[str, int]] = {}  #: variant -> state -> copies
        #: variant -> component -> state -> copies
        self.component_copies: dict[VariantId, dict[str, dict[str, int]]] = {}
        #: variant -> (component, part of the start) -> s until its last copy was ready
        self.ready_s: dict[VariantId, dict[tuple[str, str], float]] = {}
        self.instances: dict[str, InstanceSample] = {}  #: instance -> its latest sample
        #: what the response caches of a pool's copies did since the start
        self._caches: dict[PoolId, CacheCounts] = {}
        self.models = ModelRegistry(store)  #: target models of multi-model variants
        self.containers = ContainerRegistry(store)  #: of models of several
        self.work = WorkCounts()  #: what this server does besides requests
        self.loop_lag = LoopLag()  #: lag of this process's loop; the owner of the loop starts it
        self.lags: dict[str, LagObserved] = {}  #: source -> lag of that process's loop
        self._departures = Departures()  #: what was removed; it leaves this list if it comes back

    def recorder(
        self, endpoint: str, variant: str, component: str = "", config: str = ""
    ) -> VariantRecorder:
        """The recorder of a variant, or of one of its components, made on first use. `config`: the
        endpoint configuration of its copies; "" = not known.

        Keep the result: a lookup costs time. Set `retired` when no new requests come, and `apart`
        each time where they are no callers'.
        """
        pool = endpoint, variant, component
        self._departures.back(pool)
        found = self._recorders.get((*pool, config))
        if found is None:
            found = VariantRecorder(endpoint, variant, component)
            self._recorders[*pool, config] = found
            self._totals_of(pool)
        found.retired = found.apart = False
        return found

    def keep(
        self, variants: Collection[VariantId], components: Collection[PoolId], now: float
    ) -> None:
        """Says what exists at wall time `now`; everything else is removed."""
        for variant_id in self.held().difference(variants):
            self._departures.leave(variant_id, now)
            for gauges in (self.copies, self.component_copies, self.ready_s):
                gauges.pop(variant_id, None)
        for pool in self._components_held().difference(components):
            self._departures.leave(pool, now)
            self.component_copies.get(pool[:2], {}).pop(pool[2], None)

    def keep_instances(self, instance_ids: Collection[str]) -> None:
        """Says which instances exist; the gauges of all others are removed."""
        for gone in self.instances.keys() - set(instance_ids):
            del self.instances[gone]
        self.models.keep_instances(instance_ids)

    def held(self) -> set[VariantId]:
        """The variants with an entry in any table."""
        held = {variant_id for table in self._by_variant() for variant_id in table}
        return held.union(self.models.variants, (pool[:2] for pool in self._recorders))

    def set_copies(self, endpoint: str, variant: str, states: Mapping[str, int]) -> None:
        """Sets how many copies of the variant are in each state."""
        self.copies[endpoint, variant] = dict(states)

    def set_ready(
        self, endpoint: str, variant: str, ready_s: Mapping[tuple[str, str], float]
    ) -> None:
        """Sets how long its copies took to become ready, by component and part."""
        self.ready_s[endpoint, variant] = dict(ready_s)

    def set_instance_count(self, endpoint: str, variant: str, count: int) -> None:
        """Sets how many instances share the variant's requests, for InvocationsPerInstance."""
        self._departures.back((endpoint, variant))
        self._whole((endpoint, variant)).unit_count = count

    def set_publishing(self, endpoint: str, variant: str, publishing: Publishing) -> None:
        """Sets how often the variant's metrics are published."""
        self._publishing[endpoint, variant] = publishing

    def set_component_copies(self, pool: PoolId, states: Mapping[str, int]) -> None:
        """Sets how many copies of a component are in each state; the ready ones share its
        requests."""
        endpoint, variant, component = pool
        self._departures.back(pool)
        self.component_copies.setdefault((endpoint, variant), {})[component] = dict(states)
        for totals in self._totals_of(pool)[1:]:
            totals.unit_count = max(1, states.get("ready", 0))

    def of(self, endpoint: str, component: str | None = None) -> list[VariantTotals]:
        """The totals of an endpoint's variants, or those of one of its components."""
        if component is None:
            return [totals for key, totals in self.totals.items() if key[0] == endpoint]
        return [
            parts[component]
            for key, parts in self.components.items()
            if key[0] == endpoint and component in parts
        ]

    def cache_counts(self, endpoint: str, component: str | None = None) -> CacheCounts | None:
        """What the response caches of a model did since the start; None where it has none."""
        found = [
            one for key, one in self._caches.items() if key[::2] == (endpoint, component or "")
        ]
        if not found:
            return None
        total = CacheCounts()
        for one in found:
            total.add(one)
        return total

    def add_instance_sample(self, sample: InstanceSample, now: float) -> None:
        """Publishes one measurement of an instance, taken at wall time `now`."""
        self.instances[sample.instance_id] = sample
        for copy in sample.copies:
            if copy.cache is not None:
                pool = sample.endpoint, sample.variant, copy.component
                self._caches.setdefault(pool, CacheCounts()).add(copy.cache)
        if self._store is not None:
            publishing = self._publishing.get((sample.endpoint, sample.variant), ALWAYS)
            at, fine = publishing.point(now)
            for key, value in (*instance_metrics(sample), *component_metrics(sample)):
                self._store.put(key, at, StatisticSet.of(value), now=now, high_resolution=fine)
            for key, stats in request_metrics(sample) if publishing.by_instance else ():
                self._store.put(key, at, stats, now=now, high_resolution=fine)

    def add_models(
        self,
        endpoint: str,
        variant: str,
        instance_id: str,
        told: dict[str, dict[str, Any]],
        now: float,
    ) -> None:
        """Adds a report of a host of target models at wall time `now`; see `ModelRegistry.add`."""
        variant_id = endpoint, variant
        known = variant_id in self.totals
        self.models.add(variant_id, instance_id, told, now=now, known=known)

    def busy_cores(self) -> dict[str, float]:
        """Instance -> cores that it used on average before its last sample, where known."""
        return {
            instance_id: sample.cpu_percent / 100.0
            for instance_id, sample in self.instances.items()
            if sample.cpu_percent is not None
        }

    def add_charges(self, charges: Iterable[Charge], now: float) -> None:
        """Divides what instances cost among their variants' answers, and publishes both."""
        by_variant: dict[VariantId, list[Charge]] = {}
        for one in charges:
            by_variant.setdefault((one.endpoint, one.variant), []).append(one)
        for variant_id, of_variant in by_variant.items():
            # A removed variant is charged a last time, and not added again.
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
        """What each variant has cost since the start, and per answer in the last hour; JSON-ready.

        Values per answer are None if there was none.
        """
        return [
            {
                "endpoint": endpoint,
                "variant": variant,
                "dollars": totals.cost.dollars,
                "dollars_by_type": dict(totals.cost.dollars_by_type),
                "joules": dict(totals.cost.joules),
                **totals.cost.recent()._asdict(),
            }
            for (endpoint, variant), totals in self.totals.items()
        ]

    def drain(self) -> None:
        """Moves buffered durations into sketches. Optional: it spreads the cost of `collect`."""
        for recorder in self._recorders.values():
            recorder.drain()

    def in_flight(self, endpoint: str, variant: str, component: str | None = None) -> int:
        """Requests in flight now; with `component`, of that component and its adapters.

        Exact for this process; for the others, as last reported.
        """
        mine = [
            (one[2], recorder)
            for one, recorder in self._recorders.items()
            if one[:2] == (endpoint, variant)
            and (component is not None or not recorder.apart)
            and component in (None, one[2], recorder.base or one[2])
        ]
        names = {name for name, _ in mine}
        if component is None:
            told = [self.totals.get((endpoint, variant))]
        else:
            parts = self.components.get((endpoint, variant), {})
            told = [
                part
                for name, part in parts.items()
                if name == component or name in names or (component and part.base == component)
            ]
        remote = sum(sum(one.in_flight.values()) for one in told if one is not None)
        return remote + sum(recorder.in_flight for _, recorder in mine)

    def collect(self, now: float, *, final: bool = False) -> None:
        """Samples, adds up, and publishes what is due. Call it each second with the wall time.

        `final`: nothing more will be counted, so unfinished windows are published as well.
        """
        since = self._since(now)
        for one, recorder in self._recorders.items():
            with apart("metrics", " ".join(one)):
                recorder.sample(now)
                counted = recorder.take()
                told = PoolDelta(
                    one[:3], recorder.base, one[3], 0, counted.concurrency, counted, recorder.apart
                )
                self._add(told, since)
        self._drop_retired()
        self._publish(now, final=final)
        for part in (self.models, self.containers):
            part.collect(math.inf if final else now - self._lag_s)
        self._drop_due(now)
        if self._store is not None and abs(now - self._expired_at) >= EXPIRE_EVERY_S:
            self._expired_at = now
            self._store.expire(now)

    def compared(self, endpoint: str, rollout: int, component: str = "") -> dict[str, int]:
        """Outcome -> pairs of answers, of a rollout, since this process began. `component`: whose
        rollout; "" = the endpoint's own."""
        found: Counter[str] = Counter()
        for variant_id, whole in self.totals.items():
            parts = self.components.get(variant_id, {})
            totals = parts.get(component) if component else whole
            if variant_id[0] == endpoint and totals is not None:
                for (of, outcome), count in totals.compared.items():
                    if of == rollout:
                        found[outcome] += count
        return found

    def take_delta(self, now: float) -> bytes:
        """Samples, and returns all counts since the last delta, for another process's `add_delta`.

        They stay in this registry's own totals too. Call it each second with the wall time, and
        only while it can be sent: counts that are not taken are kept.
        """
        since = self._since(now)
        pools = []
        for (*pool_id, config), recorder in self._recorders.items():
            pool = (pool_id[0], pool_id[1], pool_id[2])
            recorder.sample(now)
            counted = recorder.take()
            told = None if counted.is_empty else counted
            delta = PoolDelta(
                pool, recorder.base, config, recorder.in_flight, counted.concurrency, told,
                recorder.apart,
            )  # fmt: skip
            self._add(delta, since)
            pools.append(delta)
        self._drop_retired()
        self._publish(now)
        self._drop_due(now)
        return encode(MetricDelta(since, self.loop_lag.seen(), pools))

    def add_delta(self, source: str, delta: bytes) -> None:
        """Adds a delta of the process named `source`; call it in the order of arrival.

        Raises:
            CallerError: `metrics-delta-unreadable`; nothing of the delta was added.
        """
        found = decode(delta)
        if found.lag is not None:
            self.lags[source] = found.lag
        for one in found.pools:
            if one.pool in self._departures:
                continue
            told = f"{source}/{one.pool[2]} {one.config}"
            for totals in self._totals_of(one.pool):
                if one.in_flight:
                    totals.in_flight[told] = one.in_flight
                else:
                    totals.in_flight.pop(told, None)
            if one.apart:
                self._whole(one.pool[:2]).in_flight.pop(told, None)
            if one.base:
                self._totals_of(one.pool)[-1].base = one.base
            self._add(one, found.since)

    def _add(self, one: PoolDelta, since: float) -> None:
        pool, counted = one.pool, one.counted
        for totals in self._totals_of(pool, apart=one.apart):
            if counted is None:
                totals.add_samples(one.concurrency)
            else:
                totals.add(counted, since=since)
        if one.base:
            self._totals_of((*pool[:2], one.base))[-1].add_samples(one.concurrency)
        if one.config and counted is not None and not counted.is_empty and not one.apart:
            of_variant = self._configs.setdefault(pool[:2], {})
            part = of_variant.setdefault(one.config, VariantTotals())
            part.unit_count = self._whole(pool[:2]).unit_count
            part.add(counted, since=since, samples=False)

    def forget(self, source: str) -> None:
        """The process has ended, and its requests in flight with it; its counts stay."""
        self.lags.pop(source, None)
        parts = [totals for parts in self.components.values() for totals in parts.values()]
        for totals in (*self.totals.values(), *parts):
            for told in [one for one in totals.in_flight if one.rpartition("/")[0] == source]:
                del totals.in_flight[told]

    def _publish(self, now: float, *, final: bool = False) -> None:
        for variant_id, totals in self.totals.items():
            self._publish_pool((*variant_id, ""), totals, now, final=final)
            for component, part in self.components.get(variant_id, {}).items():
                self._publish_pool((*variant_id, component), part, now, final=final)
            self._publish_configs(variant_id, now, final=final)

    def _publish_pool(
        self, pool: PoolId, totals: VariantTotals, now: float, *, final: bool
    ) -> None:
        published = pool[2] or totals is self.totals[pool[:2]]
        series = series_of(pool, totals.unit_count) if published else None
        self._publish_windows(pool[:2], totals, series, now, final=final)

    def _publish_configs(self, variant_id: VariantId, now: float, *, final: bool) -> None:
        """What is published is forgotten: other totals have it."""
        parts = self._configs.get(variant_id, {})
        for config, part in list(parts.items()):
            series = series_of_config(*variant_id, config, part.unit_count)
            self._publish_windows(variant_id, part, series, now, final=final)
            if not (part.windows or part.unpublished):
                del parts[config]

    def _publish_windows(
        self,
        variant_id: VariantId,
        totals: VariantTotals,
        series: PoolSeries | None,
        now: float,
        *,
        final: bool,
    ) -> None:
        """Publishes windows that ended so long ago that every process has reported; `final`:
        all. None: they are not published."""
        due = totals.take_due(now + WINDOW_S if final else now - self._lag_s)
        if self._store is None or series is None:
            return
        publishing = self._publishing.get(variant_id, ALWAYS)
        for start, window in due:
            series.put_concurrency(self._store, window, now)
            totals.unpublished.append((start, window))
        over = math.inf if final else now - self._lag_s
        for start, window in totals.take_unpublished(publishing.window_end, over):
            at, fine = publishing.window(start)
            series.put(self._store, at, window, now, high_resolution=fine)

    def _by_variant(self) -> tuple[dict[VariantId, Any], ...]:
        """Every table with a row per variant. `models` has those of target models."""
        return (
            self.totals,
            self.components,
            self.copies,
            self.component_copies,
            self.ready_s,
            self._publishing,
            self._configs,
        )

    def _components_held(self) -> set[PoolId]:
        held = {one[:3] for one in self._recorders if one[2]}
        for table in (self.components, self.component_copies):
            held |= {(*key, name) for key, parts in table.items() for name in parts if name}
        return held

    def _drop_due(self, now: float) -> None:
        """Drops removed pools whose last reports have come. Recorders were emptied just before."""
        dropped: set[str] = set()  # endpoints
        for pool in self._departures.due(now):
            variant_id, component = (pool[0], pool[1]), "".join(pool[2:])
            if self.in_flight(*variant_id, component or None):
                continue
            if component:
                self._drop_component((*variant_id, component), now)
            else:
                self._drop_variant(variant_id, now)
                dropped.add(pool[0])
            self._departures.dropped(pool)
        gone = dropped.difference(endpoint for endpoint, _ in self.totals)
        if self._store is not None and gone:
            self._store.rest({(("EndpointName", endpoint),) for endpoint in gone})

    def _drop_retired(self) -> None:
        """Recorders of endpoint configurations that were replaced, once all is counted. They were
        emptied just before."""
        for one in [key for key, each in self._recorders.items() if each.retired]:
            if not self._recorders[one].in_flight:
                del self._recorders[one]

    def _drop_variant(self, variant_id: VariantId, now: float) -> None:
        totals = self.totals.get(variant_id)
        if totals is not None:
            self._publish_pool((*variant_id, ""), totals, now, final=True)
        self._publish_configs(variant_id, now, final=True)
        for component in list(self.components.get(variant_id, {})):
            self._drop_component((*variant_id, component), now)
        self.models.remove(variant_id)
        self._caches.pop((*variant_id, ""), None)
        for table in self._by_variant():
            table.pop(variant_id, None)
        for pool in [pool for pool in self._recorders if pool[:2] == variant_id]:
            del self._recorders[pool]

    def _drop_component(self, pool: PoolId, now: float) -> None:
        parts = self.components.get(pool[:2], {})
        if pool[2] in parts:
            self._publish_pool(pool, parts.pop(pool[2]), now, final=True)
        self.component_copies.get(pool[:2], {}).pop(pool[2], None)
        for one in [one for one in self._recorders if one[:3] == pool]:
            del self._recorders[one]
        self._caches.pop(pool, None)

    def _since(self, now: float) -> float:
        """When the counts being taken began: counts up to the turn of a window belong to the old
        one."""
        since = now if self._collected_at is None else min(self._collected_at, now)
        self._collected_at = now
        return since

    def _whole(self, variant_id: VariantId) -> VariantTotals:
        totals = self.totals.get(variant_id)
        if totals is None:
            totals = self.totals[variant_id] = VariantTotals()
        return totals

    def _totals_of(self, pool: PoolId, *, apart: bool = False) -> tuple[VariantTotals, ...]:
        """The totals that count a pool's requests: the variant's, and the component's if there is
        one. `apart`: only that."""
        endpoint, variant, component = pool
        whole = self._whole((endpoint, variant))
        if component:
            parts = self.components.setdefault((endpoint, variant), {})
        elif (endpoint, variant) in self.components:
            parts = self.components[endpoint, variant]
        else:
            return (whole,)
        part = parts.get(component)
        if part is None:
            part = parts[component] = VariantTotals()
        return (part,) if apart else (whole, part)


def _cost_key(variant_id: VariantId, name: str, source: str) -> MetricKey:
    endpoint, variant = variant_id
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    return metric_key(OWN_NAMESPACE, name, dimensions | ({"Source": source} if source else {}))
