"""Drives every transform job of one server: checks it, begins it in its turn, shows its progress.

Also makes PenstockProgress, the member of DescribeTransformJob that AWS does not have, and
publishes what the instances of jobs use as metrics.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.control.instances.instance_status import cpu_percent, cpu_seconds
from penstock.control.loop import DriverLoop
from penstock.control.plane import ControlPlane
from penstock.control.reconcile.views import InstanceView
from penstock.core.jobs import queue
from penstock.core.jobs.progress import JobPace
from penstock.core.jobs.queue import JobRunning, JobWaiting
from penstock.core.jobs.spec import TransformSpec
from penstock.errors import CallerError, NotNowError
from penstock.jobs.transform import transactions
from penstock.jobs.transform.capacity import deployment_name, instances_max
from penstock.jobs.transform.captured import check_capture
from penstock.jobs.transform.records import GOING, STOPPED, STOPPING, JobRecord, JobTotals
from penstock.jobs.transform.run import TransformRun
from penstock.metrics.catalogue import work_catalogue as catalogue
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.item_failures import apart
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.metrics.utilization.job_metrics import job_metrics
from penstock.records.filters import Processing
from penstock.records.objects.objects import list_objects
from penstock.records.output import check_apart, check_writable


class JobUsage:
    """What the instances of all jobs use. Processor time is counted between two samples."""

    def __init__(self, plane: ControlPlane, store: MetricStore, clock: Clock) -> None:
        self._plane = plane
        self._store = store
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  #: instance -> (monotonic s, cpu s)

    async def sample(self, jobs: Iterable[str]) -> None:
        """Measures each instance once; those that do not answer are left out."""
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
        most = view.resources.memory_bytes
        points = job_metrics(
            job,
            view.instance_id,
            cpu_percent=cpu,
            memory_percent=100.0 * memory_bytes / most if most else None,
        )
        now = self._clock.wall()
        for key, value in points:
            self._store.put(key, now, StatisticSet.of(value), now=now)


def progress_of(
    totals: JobTotals, pace: JobPace, *, instances: int, waits: str, words: str = ""
) -> dict[str, Any]:
    """
    Args:
        waits: why the job does not go on now: others-first | room | storage; empty: it does, or has
            ended.
        words: the same for people, where there is more to say.
    """
    told: dict[str, Any] = {
        "Objects": totals.objects,
        "Spans": totals.spans,
        "SpansDone": totals.spans_done,
        "Records": totals.records,
        "RefusedRecords": totals.refused,
        "BytesIn": totals.bytes_in,
        "BytesTotal": totals.bytes_total,
        "BytesOut": totals.bytes_out,
        "RecordsPerSecond": pace.records_per_s,
        "EtaSeconds": pace.left_s,
        "CostSoFar": round(totals.cost, 6),
        "InstanceSeconds": round(totals.instance_s, 3),
        "Instances": instances,
    }
    told |= {"Waiting": waits} if waits else {}
    return told | ({"WaitingMessage": words} if waits and words else {})


_log = logging.getLogger(__name__)

_LOOP: Final = "transform-jobs"  #: the name of this loop in the count of failures
_LOOK_EVERY_S: Final = 5.0  #: a process that recorded a change may have died before it notified us
_RETRY_S: Final = 5.0
_MEASURE_EVERY_S: Final = 10.0  #: how often the use of instances is published
#: A prefix whose listing takes longer exists; the job itself finds out what is wrong with it.
_CHECK_S_MAX: Final = 20.0


class TransformDriver:
    """The jobs of one server. `start`, then `close`."""

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: ArtifactSettings,
        jobs_dir: Path,
        metrics: MetricStore,
        counts: WorkCounts,
    ) -> None:
        """`jobs_dir`: where the output of spans is kept until its object is complete."""
        self._counts = counts
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._jobs_dir = jobs_dir
        self._runs: dict[str, TransformRun] = {}  #: by the job's name in lower case
        self._waits: dict[str, str] = {}  #: by the same name: why the job has not begun
        self._checks: set[asyncio.Future[Any]] = set()
        self._usage = JobUsage(plane, metrics, clock)
        self._loop = DriverLoop(
            "transform-jobs", self._turn, fault="transform jobs", retry_s=_RETRY_S
        )
        self._measuring = DriverLoop(
            "transform-jobs-usage",
            self._measure,
            fault="instances of transform jobs could not be measured",
            retry_s=_MEASURE_EVERY_S,
        )

    async def start(self) -> None:
        """Resumes every job that has not ended."""
        going = await self._plane.database.call(transactions.going)
        kept = {record.name.lower() for record in going}
        await asyncio.to_thread(_sweep, self._jobs_dir, kept)
        self._loop.start()
        self._measuring.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._loop.close()
        await self._measuring.close()
        await asyncio.gather(*(run.close() for run in self._runs.values()))
        self._runs.clear()

    async def check(self, spec: TransformSpec) -> None:
        """Checks what can be known in advance: the instance type, that instances can read what the
        job keeps on this machine, the filters, that the output can be written and the input exists.

        Raises CallerError, and NotNowError where a store does not answer.
        """
        self._plane.catalogue.resolve(spec.instance_type)
        if not await self._plane.shares_disk():
            raise CallerError(
                "job-files-not-shared",
                "the nodes of the cluster do not see this machine's disk, where a job keeps what"
                " its instances have done so far",
                hint="Run transform jobs on a server with --fleet local, or on a cluster whose"
                " nodes are all this machine.",
            )
        checking = asyncio.ensure_future(asyncio.to_thread(_check, spec, self._settings))
        self._checks.add(checking)
        checking.add_done_callback(self._checked)
        done, _ = await asyncio.wait([checking], timeout=_CHECK_S_MAX)
        if done:
            checking.result()

    def notify(self, job: str) -> None:
        """Call this when a job was created, or is to be stopped."""
        self._loop.wake()

    def progress(self, record: JobRecord) -> dict[str, Any]:
        """PenstockProgress of DescribeTransformJob."""
        key = record.name.lower()
        run = self._runs.get(key)
        if run is None:
            waits = self._waits.get(key, "others-first") if record.status in GOING else ""
            return progress_of(record.totals, JobPace(None, None), instances=0, waits=waits)
        run.capacity.count()
        so_far = run.tally.so_far(instance_s=run.capacity.instance_s, cost=run.capacity.cost)
        return progress_of(
            so_far,
            run.tally.pace(now=self._clock.monotonic()),
            instances=run.capacity.instances,
            waits="storage" if run.waits_for else run.waits,
            words=run.waits_for,
        )

    def _checked(self, future: asyncio.Future[Any]) -> None:
        self._checks.discard(future)
        if not future.cancelled():
            future.exception()  # whoever still waits for it raises it

    async def _measure(self) -> float:
        await self._usage.sample([run.spec.job for run in self._runs.values()])
        return _MEASURE_EVERY_S

    async def _turn(self) -> float:
        """Begins and stops jobs as needed; returns seconds until the next look."""
        going = await self._plane.database.call(transactions.going)
        for record in going:
            if record.status == STOPPING:
                with apart(_LOOP, record.name, but=(NotNowError,)):
                    await self._stop(record)
        waiting = [
            record
            for record in going
            if record.status != STOPPING
            and not record.unreadable
            and record.name.lower() not in self._runs
        ]
        line: list[JobWaiting] = []
        for record in waiting:
            with apart(_LOOP, record.name):
                line.append(_waiting(record, self._plane))
        now = self._clock.monotonic()
        decision = queue.decide(
            line,
            [_running(key, run, self._plane) for key, run in self._runs.items()],
            cores=self._plane.catalogue.machine.cores,
            now=now,
        )
        self._waits = {name.lower(): why for name, why in decision.waits}
        self._waits |= {one.name.lower(): "record-unreadable" for one in going if one.unreadable}
        records = {record.name: record for record in waiting}
        for start in decision.starts:
            _log.info("transform job %s begins (%s)", start.name, start.reason)
            self._waits[start.name.lower()] = "start-failed"  # removed once it begins
            with apart(_LOOP, start.name):
                self._begin(records[start.name])
        self._tell(going)
        if decision.next_deadline is None:
            return _LOOK_EVERY_S
        return min(_LOOK_EVERY_S, max(decision.next_deadline - now, 0.0))

    async def _stop(self, record: JobRecord) -> None:
        run = self._runs.get(record.name.lower())
        if run is not None:
            run.stop()
        elif record.span_bytes and not record.unreadable:
            self._begin(record)  # objects whose spans are complete are still put together
        else:
            await self._plane.database.call(
                transactions.end,
                record.name,
                STOPPED,
                reason="",
                totals=record.totals,
                now=self._clock.wall(),
            )
            self._counts.count(catalogue.JOBS_ENDED, STOPPED.lower())

    def _tell(self, going: list[JobRecord]) -> None:
        """Updates the metrics of jobs."""
        since: dict[str, list[float]] = {state: [] for state in catalogue.JOB_STATES}
        for record in going:
            begun = "running" if record.name.lower() in self._runs else "waiting"
            since["stopping" if record.status == STOPPING else begun].append(record.created)
        now = self._clock.wall()
        jobs = [((state,), float(len(created))) for state, created in since.items()]
        ages = [((state,), max(0.0, now - min(at, default=now))) for state, at in since.items()]
        self._counts.gauge(catalogue.JOBS, jobs)
        self._counts.gauge(catalogue.JOB_AGE, ages)

    def _begin(self, record: JobRecord) -> None:
        key = record.name.lower()
        run = TransformRun(
            record,
            plane=self._plane,
            clock=self._clock,
            settings=self._settings,
            parts_uri=(self._jobs_dir / key).absolute().as_uri(),
            ended=self._ended,
        )
        self._runs[key] = run
        run.start(stopping=record.status == STOPPING)

    def _ended(self, name: str, outcome: str) -> None:
        if outcome:
            self._counts.count(catalogue.JOBS_ENDED, outcome.lower())
        self._runs.pop(name.lower(), None)
        self._loop.wake()


def _check(spec: TransformSpec, settings: ArtifactSettings) -> None:
    Processing(spec.processing, spec.input, spec.output, inference_ids=spec.inference_ids)
    check_writable(spec.output, settings)
    check_capture(spec, settings)
    check_apart(list_objects(spec.input, settings), spec.output, settings)


def _waiting(record: JobRecord, plane: ControlPlane) -> JobWaiting:
    return JobWaiting(
        name=record.name,
        owner=record.spec.owner,
        priority=record.spec.priority,
        created=record.created,
        instances=instances_max(record.spec, plane),
        begun=record.started is not None,
    )


def _running(key: str, run: TransformRun, plane: ControlPlane) -> JobRunning:
    return JobRunning(
        name=key,
        owner=run.spec.owner,
        instances=instances_max(run.spec, plane),
        short_since=run.capacity.short_since,
    )


def _sweep(jobs_dir: Path, kept: set[str]) -> None:
    """Deletes parts of jobs that have ended. A kill while a job's parts are being removed may leave
    some."""
    for folder in jobs_dir.iterdir() if jobs_dir.is_dir() else ():
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)
