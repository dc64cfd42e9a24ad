"""What each copy of an instance used between two samples, out of what its instance says.

Processor time is known of copies that have processes of their own; a model that runs in threads of
its instance shares the instance's. Percentages are of what is set aside for the copy, else of what
its instance has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.control.reconcile.views import CopyView, InstanceView
from penstock.core.deployment.component_spec import component_of
from penstock.metrics.utilization.instances import CopySample


class _SampleBefore(NamedTuple):
    at: float  #: monotonic s
    cpu_s: float
    requests: int


class CopyUsage:
    """Of all copies of one server."""

    def __init__(self) -> None:
        self._before: dict[
            tuple[str, int], _SampleBefore
        ] = {}  #: (instance, copy) -> its last sample

    def samples(
        self, view: InstanceView, status: dict[str, Any], now: float
    ) -> tuple[CopySample, ...]:
        """Of the copies that an instance says it has."""
        known = {one.copy: one for one in view.copies}
        taken = []
        for told in status.get("copies", ()):
            copy = known.get(told.get("copy", 0))
            if copy is not None:
                taken.append(self._sample(view, copy, told, now))
        return tuple(taken)

    def keep_instances(self, instance_ids: set[str]) -> None:
        """Others are gone."""
        self._before = {key: one for key, one in self._before.items() if key[0] in instance_ids}

    def _sample(
        self, view: InstanceView, copy: CopyView, told: dict[str, Any], now: float
    ) -> CopySample:
        workers = told.get("workers", ())
        cpu_s = sum(float(one.get("cpu_s", 0.0)) for one in workers)
        requests = int(told.get("requests", 0))
        key = view.instance_id, copy.copy
        before, self._before[key] = self._before.get(key), _SampleBefore(now, cpu_s, requests)
        cpu_percent = invocations = None
        if before is not None and now > before.at:
            invocations = max(0, requests - before.requests)
            cores = copy.cores or view.cores
            if workers and cores > 0 and cpu_s >= before.cpu_s:  # else a worker was replaced
                cpu_percent = 100.0 * (cpu_s - before.cpu_s) / (now - before.at) / cores
        held_bytes = sum(int(one.get("rss_bytes", 0)) for one in workers) or copy.model_memory_bytes
        bytes_max = copy.memory_bytes or view.memory_bytes_max
        return CopySample(
            component=component_of(copy.component),
            cpu_percent=cpu_percent,
            memory_percent=100.0 * held_bytes / bytes_max if bytes_max else None,
            invocations=invocations,
            in_flight=int(told.get("unanswered", 0)),
        )
