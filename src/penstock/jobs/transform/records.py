"""A transform job as it is on record: its status words and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import TransformInput, TransformOutput, TransformSpec
from penstock.errors import CallerError

# SageMaker's values of TransformJobStatus.
IN_PROGRESS: Final = "InProgress"
STOPPING: Final = "Stopping"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
STOPPED: Final = "Stopped"
GOING: Final = (IN_PROGRESS, STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTotals:
    """Totals of a job so far, or of all of it."""

    objects: int = 0
    spans: int = 0
    spans_done: int = 0
    records: int = 0  #: records that were read
    refused: int = 0  #: refused records, part of `records`
    bytes_in: int = 0
    bytes_total: int = 0
    bytes_out: int = 0
    instance_s: float = 0.0  #: seconds that its instances existed, summed over instances
    cost: float = 0.0  #: cost of `instance_s`, US dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job."""

    name: str
    arn: str
    request: dict[str, Any]  #: members of the CreateTransformJob call, as given
    spec: TransformSpec
    status: str
    failure_reason: str
    created: float  #: s since the epoch, as all times here
    modified: float
    started: float | None  #: None while it waits for its turn
    ended: float | None
    span_bytes: int  #: 0: its objects are not listed yet
    totals: JobTotals
    unreadable: str = ""  #: why its row could not be read; empty: it could be read


def unreadable_spec(name: str) -> TransformSpec:
    """A placeholder for the request of a job whose row can't be read; nothing is done with it."""
    return TransformSpec(
        job=name,
        model=ModelSource(model_name=""),
        instance_type="",
        instance_count=1,
        input=TransformInput(uri=""),
        output=TransformOutput(uri=""),
    )


class JobNotRunning(CallerError):
    """Only a job that is InProgress can be stopped."""

    def __init__(self, name: str, status: str) -> None:
        super().__init__(
            "transform-job-ended",
            f"The request was rejected because the transform job {name!r} is in status {status}",
        )
