"""What a batch transform job is asked for, as plain values.

Names of values are SageMaker's (CreateTransformJob). A job reads *objects*, each a sequence of
*records*; a *span* is the part of one object that is transformed at once, by one instance, and
committed whole or not at all.

How objects are cut into spans: the same objects and sizes always give the same spans.

Spans are numbers of bytes, known before anything is read: a record belongs to the span in which it
begins. Only what can be entered in the middle is cut: lines, by the newline before them, and
Parquet, by its row groups. A Gzip stream, and frames that are found only by reading all before
them (RecordIO, TFRecord), are one span each, as is an object behind https://, which is read whole.
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
    """Where records come from, and what parts them."""

    uri: str  #: file://, s3:// or https://
    data_type: str = S3_PREFIX  #: S3Prefix | ManifestFile
    content_type: str = ""  #: of a request body; of Parquet, that of the files
    compression: str = NONE  #: None | Gzip
    split: str = NONE  #: None | Line | RecordIO | TFRecord; None: an object is one record
    columns: tuple[str, ...] = ()  #: of Parquet or JSON Lines: those that the model is given


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformOutput:
    """Where answers go: one object for each of the input, `<key>.out`."""

    uri: str  #: prefix, file:// or s3://
    accept: str = ""
    assemble: str = NONE  #: None | Line: what stands between the answers


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProcessing:
    """What of a record the model sees, and what of both is written: SageMaker's JSONPath."""

    input_filter: str = "$"
    output_filter: str = "$"
    join: str = NONE  #: None | Input


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSpec:
    """One job, as it was asked for and checked."""

    job: str
    model: ModelSource  #: with the job's Environment over the model's own
    instance_type: str
    instance_count: int
    input: TransformInput
    output: TransformOutput
    processing: DataProcessing = DataProcessing()
    strategy: str = MULTI_RECORD  #: MultiRecord | SingleRecord
    payload_bytes_max: int = 6 * MIB  #: of one request body; 0 = no limit
    #: of `strategy` and `payload_bytes_max`, those that were not asked for: a container may say
    unset: tuple[str, ...] = ()
    concurrency_max: int = 0  #: requests at once in an instance; 0 = what the model says, else 1
    invocation_timeout_s: float = 600.0
    invocation_retries_max: int = 3
    refused_max: int | None = 0  #: records that may be refused before the job fails; None = all
    priority: int = 0  #: of two waiting jobs the higher goes first
    cores_max: int = 0  #: that its instances take together; 0 = what is idle
    owner: str = ""  #: access key that asked for it: waiting jobs are taken in turn by owner


@dataclass(frozen=True, slots=True, kw_only=True)
class InputObject:
    """One object as it was when the job began. It is read in this version or not at all."""

    number: int  #: in the order of the job's objects, from 0
    key: str  #: below the prefix; what its output is named after
    uri: str
    size: int  #: bytes as stored
    stamp: str  #: ETag, or size and time of change of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Bytes of one object: the records that *begin* at `start` or later and before `stop`."""

    object: int
    number: int  #: within its object, from 0
    start: int
    stop: int  #: the object's size where it can't be cut


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDone:
    """What came of a span. Its output and its errors are committed before this is said."""

    object: int
    span: int
    records: int  #: read
    refused: int  #: of them, in the error file
    bytes_in: int
    bytes_out: int
    run_s: float  #: that lanes were busy


#: Content types of Parquet, Apache's own registration last.
PARQUET_TYPES: Final = ("application/x-parquet", "application/vnd.apache.parquet")
_MEBIBYTE: Final = 1024 * 1024
#: About a minute's work of a small text model, and at most what is done again after a kill.
SPAN_BYTES: Final = 8 * _MEBIBYTE


def cut(
    objects: Iterable[InputObject], data: TransformInput, span_bytes: int = SPAN_BYTES
) -> tuple[Span, ...]:
    """The spans of all objects, in their order.

    Together an object's spans have every byte of it once. An empty object is one empty span, so
    that its output is made too.

    Args:
        span_bytes: of a span, at most and where the object can be cut; at least 1.
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
    """Whether reading can begin in the middle of it."""
    if data.compression != NONE or one.uri.lower().startswith(("http:", "https:")):
        return False
    return data.split == LINE or is_parquet(data.content_type)


def is_parquet(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in PARQUET_TYPES
