"""A control plane whose instances transform spans in this process, for tests of the driver alone.

What a span does is real: records are read, parts written and committed; the model writes each
record in capitals. One with an exclamation mark in it ends its instance, in a batch of four. How
capacity comes and goes, and what befalls a span, the test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.kit.polling import until

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock, SystemClock
from penstock.control.reconcile.hosted import HostedCopy, HostedObserved
from penstock.control.reconcile.views import InstanceView
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource
from penstock.core.deployment.endpoint_state import SlotFailure
from penstock.core.jobs.spec import (
    InputObject,
    Span,
    SpanDone,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.core.resources import ComputeResources
from penstock.errors import CallerError, ModelError, NotNowError
from penstock.fleet.catalogue import InstanceCatalogue
from penstock.jobs.transform import transactions
from penstock.jobs.transform.driver import TransformDriver
from penstock.jobs.transform.records import GOING, JobRecord
from penstock.metrics.counts.work_counts import WorkCounts
from penstock.metrics.series.store import MetricStore
from penstock.records.at_work import AtWork
from penstock.records.parts import PartWriter
from penstock.records.reader import RecordReader

_AT_WORK: Final[list[AbstractContextManager[None]]] = []
#: What happens to a span instead of being done; None: nothing.
Befalls = Callable[[str, Span], Exception | None]


class JobsPlane:
    """As much of `ControlPlane` as jobs ask for."""

    def __init__(self, database: StoreThread, cores: float) -> None:
        self.database = database
        self.catalogue = InstanceCatalogue(ComputeResources(cores=cores, memory_bytes=2**33))
        self.hosts: dict[str, DeploymentSpec] = {}
        self.asked: list[str] = []  #: deployments, in the order in which they were asked for
        self.most = 0  #: hosted at once
        self.failures: tuple[SlotFailure, ...] = ()  #: of every slot: no copy comes then
        self.befalls: Befalls = lambda job, span: None
        self.ends: tuple[SlotFailure, ...] = ()  #: of instances, after which copies come again
        self.deaths = 0  #: of instances
        self.shared = True  #: instances see the files of the server
        self.holds_at_deaths = False  #: spans wait from each of them on
        self.hold = asyncio.Event()  #: cleared: spans wait
        self.hold.set()
        self.spans: list[tuple[str, int, int]] = []  #: (job, object, span) that were done
        self._changed: dict[str, Callable[[], None]] = {}
        self._held: dict[str, list[asyncio.Event]] = {}  #: job -> ends of its spans
        self._copy = 0
        self._copies: dict[str, HostedCopy] = {}

    def host(
        self,
        deployment: DeploymentSpec,
        changed: Callable[[], None],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        name = deployment.endpoint
        self.asked.append(name)
        self.hosts[name] = deployment
        self.most = max(self.most, len(self.hosts))
        self._changed[name] = changed
        self.start_copy(name)

    def unhost(self, name: str) -> None:
        self.hosts.pop(name, None)
        self._copies.pop(name, None)

    def start_copy(self, name: str) -> None:
        self._copy += 1
        self._copies[name] = HostedCopy(copy=self._copy, instance_id=f"i{self._copy}")
        self._changed[name]()

    def hosted(self, name: str) -> HostedObserved | None:
        if name not in self.hosts:
            return None
        copies = () if self.failures else (self._copies[name],)
        return HostedObserved(
            copies=copies,
            instances=1,
            coming=0,
            price_per_hour=36.0,
            failures=self.failures or self.ends,
        )

    def instances(self, name: str) -> list[InstanceView]:
        return []

    async def shares_disk(self) -> bool:
        return self.shared

    def instance_phase(self, instance_id: str) -> str:
        return "running" if self.answers(instance_id) else ""

    def answers(self, instance_id: str) -> bool:
        return any(one.instance_id == instance_id for one in self._copies.values())

    async def call_instance(
        self, instance_id: str, op: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        if op["op"] == "transform-stop":
            for stopped in self._held.pop(op["job"], ()):
                stopped.set()
            return {}
        await self._until_let_go(op["job"])
        span = msgspec.convert(op["span"], Span)
        error = self.befalls(op["job"], span) or await asyncio.to_thread(crashes, op)
        if isinstance(error, NotNowError) and error.code == "instance-gone":
            self.deaths += 1
            if self.holds_at_deaths:
                self.hold.clear()
            self.start_copy(f"transform-job/{op['job']}")
        if error is not None:
            raise error
        if op.get("apart"):
            return {"passed": True}
        done = await asyncio.to_thread(transformed, op)
        self.spans.append((op["job"], span.object, span.number))
        return asdict(done)

    async def _until_let_go(self, job: str) -> None:
        """Raises where the job's spans are stopped meanwhile."""
        stopped = asyncio.Event()
        self._held.setdefault(job, []).append(stopped)
        waits = [asyncio.create_task(one.wait()) for one in (self.hold, stopped)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if stopped.is_set():
            raise NotNowError("transform-stopped", "it was stopped")


def crashes(op: Mapping[str, Any]) -> Exception | None:
    """The end of the instance, where a record of what it is to run brings it about; noted."""
    spec, span = msgspec.convert(op["spec"], TransformSpec), msgspec.convert(op["span"], Span)
    one = msgspec.convert(op["object"], InputObject)
    refused = {number for number, _ in op.get("refused", ())}
    records = [
        record
        for block in RecordReader(one, span, spec.input, ArtifactSettings()).blocks()
        for record in block.records
    ]
    left = [at for at in range(len(records)) if at not in refused]
    parts = op.get("apart") or [left[at : at + 4] for at in range(0, len(left), 4)]
    dead = next((part for part in parts if any(b"!" in records[at] for at in part)), None)
    if dead is None:
        return None
    if op.get("noted"):
        working = AtWork(op["parts_uri"], span).working(dead)
        working.__enter__()
        _AT_WORK.append(working)  # for ever: nobody is left who could say that it is over
    return NotNowError("instance-gone", "the instance ended by signal 8")


def transformed(op: Mapping[str, Any]) -> SpanDone:
    """Each record in capitals; those with a question mark are refused."""
    spec = msgspec.convert(op["spec"], TransformSpec)
    span = msgspec.convert(op["span"], Span)
    one = msgspec.convert(op["object"], InputObject)
    settings = ArtifactSettings.from_dict(op["settings"])
    ended = dict(op.get("refused", ()))
    writer = PartWriter(op["parts_uri"], span, spec.output)
    try:
        for block in RecordReader(one, span, spec.input, settings).blocks():
            for index, record in enumerate(block.records, block.first):
                if index in ended:
                    error = ModelError("model-worker-died", ended[index]).to_dict()
                    writer.refuse(index, block.offset_of(index), error)
                elif b"?" in record:
                    error = CallerError("no-question", "a question").to_dict()
                    writer.refuse(index, block.offset_of(index), error)
                else:
                    writer.write([record.upper()])
        summary = writer.commit()
    finally:
        writer.abandon()
    return SpanDone(
        object=span.object, span=span.number, records=summary.records, refused=summary.refused,
        bytes_in=summary.bytes_in, bytes_out=summary.bytes_out, run_s=0.0,
    )  # fmt: skip


class TransformDriverSite:
    """A driver of transform jobs with a database of its own, and a folder for data."""

    def __init__(self, folder: Path, *, cores: float = 4.0, clock: Clock | None = None) -> None:
        self.folder = folder
        self.clock = clock or SystemClock()
        self.database = StoreThread(lambda: Store(folder / "state"))
        self.plane = JobsPlane(self.database, cores)
        self.counts = WorkCounts()
        self.driver = self._driver()

    def _driver(self) -> TransformDriver:
        plane: Any = self.plane
        return TransformDriver(
            plane=plane,
            clock=self.clock,
            settings=ArtifactSettings(),
            jobs_dir=self.folder / "state" / "jobs",
            metrics=MetricStore(),
            counts=self.counts,
        )

    async def open(self) -> None:
        await self.database.open()
        await self.driver.start()

    async def close(self) -> None:
        await self.driver.close()
        await self.database.close()

    async def restart(self, *, meanwhile: Callable[[], None] | None = None) -> None:
        """A new driver on what is on record."""
        await self.driver.close()
        for name in list(self.plane.hosts):
            self.plane.unhost(name)
        if meanwhile is not None:
            meanwhile()
        self.driver = self._driver()
        await self.driver.start()

    def put(self, key: str, *lines: str) -> None:
        path = self.folder / "in" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    def spec(self, job: str, **fields: Any) -> TransformSpec:
        told: dict[str, Any] = {
            "job": job,
            "model": ModelSource(model_name="m"),
            "instance_type": "ml.local.small",
            "instance_count": 1,
            "input": TransformInput(
                uri=(self.folder / "in").as_uri(), content_type="text/plain", split="Line"
            ),
            "output": TransformOutput(uri=(self.folder / "out" / job).as_uri(), assemble="Line"),
        }
        return TransformSpec(**told | fields)

    async def create(self, job: str, *, now: float = 1.0, **fields: Any) -> None:
        spec = self.spec(job, **fields)
        await self.driver.check(spec)
        await self.database.call(transactions.create, spec, {}, arn=f"arn:{job}", now=now, tags={})
        self.driver.notify(job)

    async def record(self, job: str) -> JobRecord:
        return await self.database.call(transactions.describe, job)

    async def ended(self, job: str) -> JobRecord:
        return await self.until(job, lambda record: record.status not in GOING)

    async def until(self, job: str, condition: Callable[[JobRecord], bool]) -> JobRecord:
        async def there() -> bool:
            return condition(await self.record(job))

        await until(there)
        return await self.record(job)

    def outputs(self, job: str) -> dict[str, str]:
        top = self.folder / "out" / job
        files = sorted(path for path in top.rglob("*") if path.is_file())
        return {path.relative_to(top).as_posix(): path.read_text() for path in files}
