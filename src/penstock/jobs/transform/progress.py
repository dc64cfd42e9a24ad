"""PenstockProgress, the member of DescribeTransformJob that AWS has not."""

from __future__ import annotations

from typing import Any

from penstock.core.jobs.progress import JobPace
from penstock.jobs.transform.records import JobTotals


def progress_of(
    totals: JobTotals, pace: JobPace, *, instances: int, waits: str, words: str = ""
) -> dict[str, Any]:
    """
    Args:
        waits: why it does not go on now: others-first | room | storage; empty: it does, or has
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
