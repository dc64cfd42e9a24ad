"""What one job has done so far and how fast, as DescribeTransformJob shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.core.jobs.progress import JobPace, JobProgress
from penstock.core.jobs.spec import SpanDone
from penstock.jobs.transform.records import JobTotals
from penstock.jobs.transform.work import JobWork


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
