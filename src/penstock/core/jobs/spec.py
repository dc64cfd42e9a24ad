"""The spec of a batch transform job, and how its input is cut into spans: plain values.

Names of values are SageMaker's (CreateTransformJob). A job reads *objects*, each a sequence of
*records*; a *span* is the part of one object that is transformed at once, by one instance, and
committed whole or not at all.

The same objects and sizes always give the same spans. Spans are ranges of bytes, known before
anything is read: a record belongs to the span in which it begins. Only formats that can be read
from the middle are cut: lines, after the newline before them, and Parquet, by its row groups. A
Gzip stream is one span, and so are frames that are found only by reading all before them (RecordIO,
TFRecord), and an object behind https://, which is read whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.core.deployment.deployment import ModelSource

S3_PREFIX: Final = "S3Prefix"
MANIFEST_FILE: Final = "ManifestFile"

NONE: Final = "None"
GZIP: Final = "Gzip"
LINE: Final = "Line"
RECORD_IO: Final = "RecordIO"
TF_RECORD: Final = "TFRecord"
INPUT: Final = "Input"

MULTI_RECORD: Final = "MultiRecord"
SINGLE_RECORD: Final = "SingleRecord"

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformInput:
    """Where records come from, and how they are separated."""

    uri: str  #: file://, s3:// or https://
    data_type: str = S3_PREFIX  #: S3Prefix | ManifestFile
    content_type: str = ""  #: content type of a request body; for Parquet, of the files
    compression: str = NONE  #: None | Gzip
    split: str = NONE  #: None | Line | RecordIO | TFRecord; None: an object is one record
    #: for Parquet or JSON Lines: columns that the model gets; empty: all
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOutput:
    """Where answers are written: one object, `<key>.out`, for each input object."""

    uri: str  #: prefix, file:// or s3://
    accept: str = ""
    assemble: str = NONE  #: separator between the answers: None | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProcessing:
    """SageMaker's JSONPath filters: which part of a record the model gets, and what is written."""

    input_filter: str = "$"
    output_filter: str = "$"
    join: str = NONE  #: None | Input


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSpec:
    """One job, as requested and checked."""

    job: str
    model: ModelSource  #: the job's Environment overrides the model's own
    instance_type: str
    instance_count: int
    input: TransformInput
    output: TransformOutput
    processing: DataProcessing = DataProcessing()
    strategy: str = MULTI_RECORD  #: MultiRecord | SingleRecord
    payload_bytes_max: int = 6 * MIB  #: maximum of one request body; 0 = no limit
    #: which of `strategy` and `payload_bytes_max` the request did not set: a container may set them
    unset: tuple[str, ...] = ()
    concurrency_max: int = 0  #: requests at once in an instance; 0 = what the model says, else 1
    invocation_timeout_s: float = 600.0
    invocation_retries_max: int = 3
    refused_max: int | None = 0  #: records that may be refused before the job fails; None = all
    priority: int = 0  #: the waiting job with the higher priority goes first
    cores_max: int = 0  #: cores of all its instances together; 0 = those that are idle
    owner: str = ""  #: access key of the request: waiting jobs of different owners take turns


@dataclass(frozen=True, slots=True, kw_only=True)
class InputObject:
    """One object as it was when the job began. The job reads this version or fails."""

    number: int  #: in the order of the job's objects, from 0
    key: str  #: below the prefix; its output is named after it
    uri: str
    size: int  #: bytes as stored
    stamp: str  #: ETag, or size and modification time of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Bytes of one object: the records that *begin* at `start` or later and before `stop`."""

    object: int
    number: int  #: within its object, from 0
    start: int
    stop: int  #: exclusive; the object's size where it can't be cut


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDone:
    """The result of a span. Its output and its error file are committed before this is reported."""

    object: int
    span: int
    records: int  #: records read
    refused: int  #: records refused; they are in the error file
    bytes_in: int
    bytes_out: int
    run_s: float  #: s for which lanes were busy


#: Content types of Parquet; Apache's own registration is the last.
PARQUET_TYPES: Final = ("application/x-parquet", "application/vnd.apache.parquet")
#: About a minute of work of a small text model; at most this much is repeated after a kill.
SPAN_BYTES: Final = 8 * MIB


def cut(
    objects: Iterable[InputObject], data: TransformInput, span_bytes: int = SPAN_BYTES
) -> tuple[Span, ...]:
    """The spans of all objects, in their order.

    Together an object's spans have each of its bytes once. An empty object is one empty span, so
    that it has an output too.

    Args:
        span_bytes: maximum size of a span, where the object can be cut; at least 1.
    """
    if span_bytes < 1:
        raise ValueError(f"span_bytes is {span_bytes}")
    spans: list[Span] = []
    for one in objects:
        step = span_bytes if can_cut(one, data) else max(span_bytes, one.size)
        starts = range(0, max(1, one.size), step)
        spans += [
            Span(object=one.number, number=number, start=start, stop=min(start + step, one.size))
            for number, start in enumerate(starts)
        ]
    return tuple(spans)


def can_cut(one: InputObject, data: TransformInput) -> bool:
    """Whether reading can begin in the middle of the object."""
    if data.compression != NONE or one.uri.lower().startswith(("http:", "https:")):
        return False
    return data.split == LINE or is_parquet(data.content_type)


def is_parquet(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in PARQUET_TYPES
