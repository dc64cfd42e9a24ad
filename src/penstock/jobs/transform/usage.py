"""What the instances of transform jobs use, on its way into the metrics."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.clock import Clock
from penstock.control.instances.instance_status import cpu_percent, cpu_seconds
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import InstanceView
from penstock.jobs.transform.capacity import deployment_name
from penstock.metrics.item_failures import apart
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.job_metrics import job_metrics


class JobUsage:
    """Of all jobs of one server. Processor time is counted between two samples."""

    def __init__(self, plane: ControlPlane, store: MetricStore, clock: Clock) -> None:
        self._plane = plane
        self._store = store
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  #: instance -> (monotonic s, cpu s)

    async def sample(self, jobs: Iterable[str]) -> None:
        """One measurement of each instance; those that do not answer are left out."""
        used: dict[str, tuple[float, float]] = {}
        for job in jobs:
            with apart("transform-usage", job):
                await self._sample_job(job, used)
        self._used = used

    async def _sample_job(self, job: str, used: dict[str, tuple[float, float]]) -> None:
        for view in self._plane.instances(deployment_name(job)):
            status = await self._plane.instance_status(view.instance_id)
            if not status:
                continue
            measured = used[view.instance_id] = self._clock.monotonic(), cpu_seconds(status)
            before = self._used.get(view.instance_id)
            self._put(job, view, cpu_percent(before, measured), status["memory_bytes"])

    def _put(self, job: str, view: InstanceView, cpu: float | None, memory_bytes: int) -> None:
        most = view.memory_bytes_max
        points = job_metrics(
            job,
            view.instance_id,
            cpu_percent=cpu,
            memory_percent=100.0 * memory_bytes / most if most else None,
        )
        now = self._clock.wall()
        for key, value in points:
            self._store.put(key, now, StatisticSet.of(value), now=now)
