"""Ids of a job's answers (GenerateInferenceId): they name the answers that others judge later.

An id is a UUID of version 5 (RFC 9562, section 5.5) of the job, its begin, and the place of the
record: a span that is repeated gives its records the same ids.
(docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-batch.html)
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Final

from penstock.core.jobs.spec import Span

#: Keys in JSON; in CSV they are the last two columns, in this order.
ID_KEY: Final = "SageMakerInferenceId"
TIME_KEY: Final = "SageMakerInferenceTime"


class InferenceIds:
    """Those of one span."""

    def __init__(self, job: str, span: Span, *, began: float) -> None:
        """`began`: of the job, s since the epoch, as it is on record."""
        words = f"{job} {began!r} {span.object} {span.number}"
        self._space: Final = uuid.uuid5(uuid.NAMESPACE_URL, words)
        self.time: Final = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def of(self, record: int, row: int = 0) -> str:
        """`row`: of the record's answer, where that has several."""
        return str(uuid.uuid5(self._space, f"{record} {row}"))
