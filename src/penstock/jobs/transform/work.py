"""The work of a job: its objects, listed once, and the spans that they are cut into; how much of it
is done and how fast, as DescribeTransformJob shows it; and its outputs, assembled on threads, with
error files where there is no output.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.artifacts.files.budget import disk_errors
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.control.store.store_thread import StoreThread
from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.jobs.job import TransformJob
from penstock.core.jobs.job_actions import JobPolicy, NotDone
from penstock.core.jobs.progress import JobPace, JobProgress
from penstock.core.jobs.spec import InputObject, Span, SpanDone, cut, span_bytes_for
from penstock.core.request.storage_failures import is_storage
from penstock.errors import PenstockError
from penstock.jobs.transform import transactions
from penstock.jobs.transform.captured import put_manifests
from penstock.jobs.transform.outcomes import first_refusal, kind_of_output, put_errors, reason_of
from penstock.jobs.transform.records import JobRecord, JobTotals
from penstock.records.objects.objects import list_objects
from penstock.records.output import assemble
from penstock.records.parts import forget, part_path, parts_folder


@dataclass(frozen=True, slots=True)
class JobWork:
    """The work of one job, as far as it is on record."""

    objects: tuple[InputObject, ...]
    spans: tuple[Span, ...]
    began: float  #: when it was listed, s since the epoch
    failed: dict[int, str] = field(default_factory=dict)
    assembled: set[int] = field(default_factory=set)
    done: list[SpanDone] = field(default_factory=list)
    cases: dict[tuple[int, int], CrashCase] = field(default_factory=dict)

    @property
    def bytes_total(self) -> int:
        return sum(one.size for one in self.objects)

    def spans_of(self) -> dict[int, list[Span]]:
        """The spans by object."""
        found: dict[int, list[Span]] = {one.number: [] for one in self.objects}
        for span in self.spans:
            found[span.object].append(span)
        return found


async def begin(
    record: JobRecord, database: StoreThread, settings: ArtifactSettings, *, now: float
) -> JobWork:
    """Lists the objects and records them: from now on the job reads these versions.

    Raises what `list_objects` raises, and NotNowError of the database.
    """
    spec = record.spec
    objects = await asyncio.to_thread(list_objects, spec.input, settings)
    bytes_total = sum(one.size for one in objects)
    span_bytes = span_bytes_for(bytes_total, spec.instance_count)
    spans = cut(objects, spec.input, span_bytes)
    totals = JobTotals(objects=len(objects), spans=len(spans), bytes_total=bytes_total)
    await database.call(
        transactions.begin, record.name, objects, span_bytes=span_bytes, totals=totals, now=now
    )
    return JobWork(objects, spans, now)


async def take_up(record: JobRecord, database: StoreThread, parts_uri: str) -> JobWork:
    """The work as recorded before. Spans that another server did are repeated: their parts are on
    its own disk."""
    objects, failed, assembled, done = await database.call(transactions.work_of, record.name)
    cases = await database.call(transactions.cases_of, record.name)
    done = await asyncio.to_thread(_here, done, assembled, parts_uri)
    spans = cut(objects, record.spec.input, record.span_bytes)
    began = record.started if record.started is not None else record.created
    return JobWork(tuple(objects), spans, began, failed, assembled, done, cases)


def _here(done: list[SpanDone], assembled: set[int], parts_uri: str) -> list[SpanDone]:
    return [
        one
        for one in done
        if one.object in assembled or part_path(parts_uri, one.object, one.span).exists()
    ]


def machine_of(record: JobRecord, work: JobWork, parts_uri: str) -> TransformJob:
    """The job's state machine, continued from the record. Reads parts: call it on a thread."""
    spans = {(one.object, one.number): one for one in work.spans}
    refusals: dict[int, str] = {}
    for one in work.done:
        if one.refused and one.object not in refusals:
            refusals[one.object] = first_refusal(parts_uri, spans[one.object, one.span])
    return TransformJob(
        work.objects,
        work.spans,
        JobPolicy(refused_max=record.spec.refused_max),
        done=work.done,
        failed=work.failed,
        assembled=work.assembled,
        refusals=refusals,
        cases=work.cases,
    )


class Tally:
    """The counters of one running job."""

    def __init__(self, totals: JobTotals) -> None:
        """`totals`: those on record."""
        self._totals = totals
        self._progress = JobProgress(bytes_total=totals.bytes_total)

    def begin(self, work: JobWork, *, now: float) -> None:
        """Begins with the spans that are done already."""
        self._totals = replace(
            self._totals,
            objects=len(work.objects),
            spans=len(work.spans),
            spans_done=len(work.done),
            records=sum(one.records for one in work.done),
            refused=sum(one.refused for one in work.done),
            bytes_in=sum(one.bytes_in for one in work.done),
            bytes_out=sum(one.bytes_out for one in work.done),
            bytes_total=work.bytes_total,
        )
        self._progress = JobProgress(
            bytes_total=work.bytes_total,
            records=self._totals.records,
            bytes_in=self._totals.bytes_in,
        )

    def under_way(self, event: dict[str, Any], *, now: float) -> None:
        """The progress of a span: an instance's `transform-progress` event."""
        span = int(event["object"]), int(event["span"])
        self._progress.under_way(span, int(event["records"]), int(event["refused"]), now=now)

    def done(self, result: SpanDone, *, now: float) -> None:
        before = self._totals
        self._totals = replace(
            before,
            spans_done=before.spans_done + 1,
            records=before.records + result.records,
            refused=before.refused + result.refused,
            bytes_in=before.bytes_in + result.bytes_in,
            bytes_out=before.bytes_out + result.bytes_out,
        )
        key = result.object, result.span
        self._progress.done(key, result.records, result.bytes_in, now=now)

    def not_done(self, span: tuple[int, int], *, now: float) -> None:
        self._progress.not_done(span, now=now)

    def totals(self, *, instance_s: float, cost: float) -> JobTotals:
        """The totals of completed spans."""
        return replace(self._totals, instance_s=instance_s, cost=cost)

    def pace(self, *, now: float) -> JobPace:
        return self._progress.pace(now=now)

    def so_far(self, *, instance_s: float, cost: float) -> JobTotals:
        """The totals including the progress of running spans."""
        totals, progress = self.totals(instance_s=instance_s, cost=cost), self._progress
        return replace(
            totals,
            records=progress.records,
            refused=totals.refused + progress.refused_under_way,
            bytes_in=progress.bytes_in,
        )


_log = logging.getLogger(__name__)

_AT_ONCE: Final = 2


class JobOutputs:
    """The outputs of one running job."""

    def __init__(
        self, record: JobRecord, work: JobWork, parts_uri: str, settings: ArtifactSettings
    ) -> None:
        self._record = record
        self._parts_uri = parts_uri
        self._settings = settings
        self._objects = {one.number: one for one in work.objects}
        self._began = work.began
        self._spans = work.spans_of()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._in_place = set(work.assembled)
        self._refused = {(one.object, one.span) for one in work.done if one.refused}

    async def assemble(self, number: int) -> NotDone | None:
        """None: the output is in its place. Idempotent."""
        async with self._places:
            try:
                await asyncio.to_thread(self._assemble, number)
            except PenstockError as error:
                return NotDone(kind_of_output(error), reason_of(error))
        self._in_place.add(number)
        return None

    def _assemble(self, number: int) -> None:
        spec = self._record.spec
        with self._disk():
            assemble(
                self._objects[number],
                self._spans[number],
                self._parts_uri,
                spec.output,
                self._settings,
                processing=spec.processing,
            )

    def _disk(self) -> AbstractContextManager[None]:
        """Held while parts are read, wherever the output goes."""
        return disk_errors("parts of the job's output", parts_folder(self._parts_uri))

    def refused(self, number: int, span: int) -> None:
        """Notes that a committed part has refused records."""
        self._refused.add((number, span))

    async def finish(self) -> PenstockError | None:
        """Writes why objects have no output, and what was captured, and removes all parts.
        Idempotent.

        Returns an error where a disk or a store fails for now: then nothing is removed. Call it
        again, or `give_up`.
        """
        return await asyncio.to_thread(self._finish)

    async def give_up(self) -> None:
        """Removes all parts, even if errors were not written."""
        await asyncio.to_thread(forget, self._parts_uri)

    def _finish(self) -> PenstockError | None:
        for number in sorted({one for one, _ in self._refused} - self._in_place):
            spans = (span for one, span in self._refused if one == number)
            error = self._put_errors(number, spans)
            if error is not None and is_storage(error):
                return error
        error = self._put_manifests()
        if error is not None and is_storage(error):
            return error
        forget(self._parts_uri)
        return None

    def _put_manifests(self) -> PenstockError | None:
        objects = [one for number, one in self._objects.items() if number in self._in_place]
        try:
            put_manifests(self._record.spec, objects, self._settings, began=self._began)
        except PenstockError as error:
            name = self._record.name
            _log.warning("transform job %s: nothing is captured: %s", name, error.message)
            return error
        return None

    def _put_errors(self, number: int, spans: Iterable[int]) -> PenstockError | None:
        wanted = set(spans)
        refused = [span for span in self._spans[number] if span.number in wanted]
        spec = self._record.spec
        try:
            with self._disk():
                put_errors(
                    self._objects[number], refused, self._parts_uri, spec.output, self._settings
                )
        except PenstockError as error:
            name = self._record.name
            _log.warning("transform job %s: no errors are written: %s", name, error.message)
            return error
        return None
