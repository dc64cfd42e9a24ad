"""What a batch transform job is asked for, as plain values.

Names of values are SageMaker's (CreateTransformJob). A job reads *objects*, each a sequence of
*records*; a *span* is the part of one object that is transformed at once, by one instance, and
committed whole or not at all.
"""

from __future__ import annotations

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
