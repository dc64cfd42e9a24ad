"""The work of a job: its objects, listed once, and the spans that they are cut into."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.control.store.store_thread import StoreThread
from penstock.core.blame.crashed_instances import CrashCase
from penstock.core.jobs.job import TransformJob
from penstock.core.jobs.job_actions import JobPolicy
from penstock.core.jobs.shares import span_bytes_for
from penstock.core.jobs.spec import InputObject, Span, SpanDone, cut
from penstock.jobs.transform import transactions
from penstock.jobs.transform.outcomes import first_refusal
from penstock.jobs.transform.records import JobRecord, JobTotals
from penstock.records.objects.objects import list_objects
from penstock.records.parts import part_path


@dataclass(frozen=True, slots=True)
class JobWork:
    """The work of one job, as far as it is on record."""

    objects: tuple[InputObject, ...]
    spans: tuple[Span, ...]
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
    return JobWork(objects, spans)


async def take_up(record: JobRecord, database: StoreThread, parts_uri: str) -> JobWork:
    """The work as recorded before. Spans that another server did are repeated: their parts are on
    its own disk."""
    objects, failed, assembled, done = await database.call(transactions.work_of, record.name)
    cases = await database.call(transactions.cases_of, record.name)
    done = await asyncio.to_thread(_here, done, assembled, parts_uri)
    spans = cut(objects, record.spec.input, record.span_bytes)
    return JobWork(tuple(objects), spans, failed, assembled, done, cases)


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
