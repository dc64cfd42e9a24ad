"""What the metrics observe of copies and instances, from the control plane and from instances.

The processor time of a copy is known if it has processes of its own; a model in threads of its
instance shares the instance's. Percentages are of the resources reserved for the copy, else of
those of its instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.clock import Clock
from penstock.control.instances.instance_status import cpu_percent, cpu_seconds
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.core.deployment.capacity_spec import component_of
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.fleet.base import InstanceType
from penstock.metrics.counts.window_metrics import ALWAYS, Publishing, publishing_of
from penstock.metrics.driver import VariantObserved
from penstock.metrics.item_failures import apart
from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.utilization.cost import InstanceHeld
from penstock.metrics.utilization.instances import CacheCounts, CopySample, InstanceSample


class _SampleBefore(NamedTuple):
    at: float  #: monotonic s
    cpu_s: float
    requests: int
    cache: CacheCounts | None


class CopyUsage:
    """Processor use of all copies of one server, between samples."""

    def __init__(self) -> None:
        self._before: dict[
            tuple[str, int], _SampleBefore
        ] = {}  #: (instance, copy) -> its last sample

    def samples(
        self, view: InstanceView, status: dict[str, Any], now: float
    ) -> tuple[CopySample, ...]:
        """Samples of the copies that an instance reports."""
        known = {one.copy: one for one in view.copies}
        taken = []
        for report in status.get("copies", ()):
            copy = known.get(report.get("copy", 0))
            if copy is not None:
                taken.append(self._sample(view, copy, report, now))
        return tuple(taken)

    def keep_instances(self, instance_ids: set[str]) -> None:
        """Forgets all other instances."""
        self._before = {key: one for key, one in self._before.items() if key[0] in instance_ids}

    def _sample(
        self, view: InstanceView, copy: CopyView, report: dict[str, Any], now: float
    ) -> CopySample:
        workers = report.get("workers", ())
        cpu_s = sum(float(one.get("cpu_s", 0.0)) for one in workers)
        requests = int(report.get("requests", 0))
        key = view.instance_id, copy.copy
        cache = CacheCounts(**report["cache"]) if "cache" in report else None
        before = self._before.get(key)
        self._before[key] = _SampleBefore(now, cpu_s, requests, cache)
        cpu_percent = invocations = None
        if before is not None and now > before.at:
            invocations = max(0, requests - before.requests)
            cores = copy.set_aside.cores or view.resources.cores
            # a lower time means a replaced worker
            if workers and cores > 0 and cpu_s >= before.cpu_s:
                cpu_percent = 100.0 * (cpu_s - before.cpu_s) / (now - before.at) / cores
        held_bytes = sum(int(one.get("rss_bytes", 0)) for one in workers) or copy.model_memory_bytes
        bytes_max = copy.set_aside.memory_bytes or view.resources.memory_bytes
        return CopySample(
            component=component_of(copy.component),
            cpu_percent=cpu_percent,
            memory_percent=100.0 * held_bytes / bytes_max if bytes_max else None,
            invocations=invocations,
            in_flight=int(report.get("unanswered", 0)),
            queue_rows=int(report.get("queue_rows", 0)),
            cache=_since(cache, before.cache if before is not None else None),
        )


def _since(now: CacheCounts | None, before: CacheCounts | None) -> CacheCounts | None:
    if now is None or before is None or now.misses < before.misses:
        return now  # the first sample of a copy
    return CacheCounts(
        now.hits - before.hits,
        now.misses - before.misses,
        now.hit_s - before.hit_s,
        now.miss_s - before.miss_s,
    )


class Observation:
    """Reads the control plane. Utilization is processor time used between two samples."""

    def __init__(
        self,
        plane: ControlPlane,
        published: Callable[[], Sequence[EndpointRoutes]],
        clock: Clock,
    ) -> None:
        self._plane = plane
        self._published = published
        self._clock = clock
        self._copies = CopyUsage()
        self._used: dict[str, tuple[float, float]] = {}  #: instance -> (monotonic s, cpu s)

    def variants(self) -> list[VariantObserved]:
        """Copies of every endpoint that the gateway routes to, by variant and state. A variant
        without instances is included: requests may wait for one."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        components: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
        instances: dict[tuple[str, str], list[InstanceHeld]] = {}
        serving: dict[tuple[str, str], int] = {}
        for routes in self._published():
            for pool in routes.hosted:
                key = routes.endpoint, pool.name
                found.setdefault(key, {})
                if pool.component:
                    components.setdefault(key, {})[pool.component] = {}
        ready_s: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for endpoint, view in self._views():
            key = endpoint, view.variant
            for copy in view.copies:
                model = component_of(copy.component) or view.variant
                parts = self._plane.ready_times.parts_s(endpoint, model)
                ready_s.setdefault(key, {}).update(
                    ((model, part), value) for part, value in parts.items()
                )
            states = found.setdefault(key, {})
            for state in view.states:
                states[state] = states.get(state, 0) + 1
            for copy in view.copies:
                of_component = components.get(key, {}).get(component_of(copy.component))
                if of_component is not None:
                    of_component[copy.phase] = of_component.get(copy.phase, 0) + 1
            serving[key] = serving.get(key, 0) + view.serves
            kind = self._plane.catalogue.resolve(view.instance_type)
            machine_bytes = self._plane.catalogue.machine.memory_bytes
            instances.setdefault(key, []).append(held(endpoint, view, kind, machine_bytes))
        return [
            VariantObserved(
                endpoint=endpoint,
                variant=variant,
                copies=states,
                serving_count=serving.get((endpoint, variant), 0),
                instances=tuple(instances.get((endpoint, variant), ())),
                components=components.get((endpoint, variant), {}),
                publishing=self._publishing(endpoint),
                ready_s=ready_s.get((endpoint, variant), {}),
            )
            for (endpoint, variant), states in found.items()
        ]

    def _publishing(self, endpoint: str) -> Publishing:
        shown = self._plane.shown(endpoint)
        if shown is None:
            return ALWAYS
        return publishing_of(shown.metrics_publish_s, enhanced=shown.metrics_enhanced)

    async def samples(self) -> list[InstanceSample]:
        """One measurement of each instance; those that do not answer are left out."""
        taken = []
        used: dict[str, tuple[float, float]] = {}
        for endpoint, view in self._views():
            # a fault in one instance's report stays its own
            with apart("metrics", view.instance_id):
                status = await self._plane.instance_status(view.instance_id)
                if status:
                    taken.append(self._sampled(endpoint, view, status, used))
        self._used = used
        self._copies.keep_instances(set(used))
        return taken

    def _sampled(
        self,
        endpoint: str,
        view: InstanceView,
        status: dict[str, Any],
        used: dict[str, tuple[float, float]],
    ) -> InstanceSample:
        now, cpu_s = self._clock.monotonic(), cpu_seconds(status)
        used[view.instance_id] = (now, cpu_s)
        before = self._used.get(view.instance_id)
        return InstanceSample(
            endpoint=endpoint,
            variant=view.variant,
            instance_id=view.instance_id,
            cpu_percent=cpu_percent(before, (now, cpu_s)),
            cpu_cores=max(1, round(view.resources.cores)),
            memory_percent=memory_percent(status, view),
            loop_lag=LagObserved.from_dict(status.get("loop_lag", {})),
            loaded_model_count=loaded_models(status),
            copies=self._copies.samples(view, status, now),
            code_metrics=tuple(
                series for one in status.get("copies", ()) for series in one.get("code_metrics", ())
            ),
            **engines(status),
        )

    def _views(self) -> list[tuple[str, InstanceView]]:
        return [
            (routes.endpoint, view)
            for routes in self._published()
            for view in self._plane.instances(routes.endpoint)
        ]


def held(endpoint: str, view: InstanceView, kind: InstanceType, machine_bytes: int) -> InstanceHeld:
    """An instance for cost and energy. `machine_bytes`: the memory of one without a bound."""
    return InstanceHeld(
        endpoint=endpoint,
        variant=view.variant,
        instance_id=view.instance_id,
        cores=view.resources.cores,
        accelerators=kind.resources.accelerators,
        watts=kind.watts,
        price_per_hour=kind.price_per_hour,
        load_s=view.load_s,
        instance_type=view.instance_type,
        memory_bytes=view.resources.memory_bytes or machine_bytes,
    )


def engines(status: dict[str, Any]) -> dict[str, Any]:
    """What the generation engines and the stateful models of an instance report; {} where it has
    none."""
    copies = status.get("copies", ())
    kept = [one["sequences"] for one in copies if "sequences" in one]
    if kept:
        return {"stateful": {key: sum(int(one[key]) for one in kept) for key in kept[0]}}
    reports = [one["generation"] for one in copies if "generation" in one]
    if not reports:
        return {}
    return {
        "sequences_running": sum(int(one.get("sequences_running", 0)) for one in reports),
        "sequences_waiting": sum(int(one.get("sequences_waiting", 0)) for one in reports),
        "cache_percent": max(100.0 * float(one.get("cache_use", 0.0)) for one in reports),
    }


def loaded_models(status: dict[str, Any]) -> int:
    """Loaded models: one for each copy; on a host of target models, those that it has loaded."""
    return sum(int(one.get("models_loaded", 1)) for one in status.get("copies", ()))


def memory_percent(status: dict[str, Any], view: InstanceView) -> float | None:
    """Memory in use, in % of the instance's; None where it has no bound."""
    if not view.resources.memory_bytes:
        return None
    return 100.0 * float(status.get("memory_bytes", 0)) / view.resources.memory_bytes
