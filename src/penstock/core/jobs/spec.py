"""The spec of a batch transform job, and how its input is cut into spans: plain values.

Names of values are SageMaker's (CreateTransformJob). A job reads *objects*, each a sequence of
*records*; a *span* is the part of one object that is transformed at once, by one instance, and
committed whole or not at all.

The same objects and sizes always give the same spans. Spans are ranges of bytes, known before
anything is read: a record belongs to the span in which it begins. Only formats that can be read
from the middle are cut: lines, after the newline before them, and Parquet, by its row groups. A
Gzip stream is one span, and so are frames that are found only by reading all before them (RecordIO,
TFRecord), and an object behind https://, which is read whole.

Which copy does which span next: each has a share of neighbours, and steals when it is empty.

A copy works through its share in order, so that it reads neighbouring data. A copy with an empty
share takes the farther half of the longest share, as in work stealing schedulers (Blumofe and
Leiserson, 1999): copies of any speed end within about a span of each other, and few spans change
hands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
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
class TransformCapture:
    """Its DataCaptureConfig: lists of the objects that were read and written, by hour."""

    uri: str  #: prefix, file:// or s3://
    inference_ids: bool = False  #: each answer gets an id and the job's begin


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
    capture: TransformCapture | None = None
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

    @property
    def inference_ids(self) -> bool:
        return self.capture is not None and self.capture.inference_ids


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


FIRST: Final = "next-in-share"
STOLEN: Final = "stolen"

#: Spans per instance: enough that a slower one can give some away.
_SPANS_EACH: Final = 16
#: Below this size the way to an instance and back costs too much.
_SPAN_BYTES_MIN: Final = 256 * 1024


def span_bytes_for(bytes_total: int, instances: int) -> int:
    """Bytes per span of a job: many spans for each instance, and none so large that much is lost
    when it must be done again."""
    wanted = bytes_total // (instances * _SPANS_EACH)
    return max(_SPAN_BYTES_MIN, min(wanted, SPAN_BYTES))


class SpanQueues:
    """Spans that have not begun, by the copy that is to do them."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._free: deque[Span] = deque(spans)  #: spans in no copy's share
        self._shares: dict[int, deque[Span]] = {}  #: by copy; no share is empty

    def __len__(self) -> int:
        return len(self._free) + sum(len(share) for share in self._shares.values())

    def keep(self, copies: Collection[int]) -> None:
        """Returns the shares of copies that are gone to the free spans."""
        for copy in sorted(self._shares.keys() - set(copies)):
            self._free.extend(self._shares.pop(copy))

    def take(self, copy: int, copies: int) -> tuple[Span, str] | None:
        """The next span of a copy, and the reason; None while there is none to begin.

        Args:
            copies: number of copies: each takes its part of the free spans.
        """
        reason = FIRST
        if copy not in self._shares:
            if self._free:
                self._take_part(copy, max(copies - len(self._shares), 1))
            elif self._shares:
                self._steal(copy)
                reason = STOLEN
            else:
                return None
        share = self._shares[copy]
        span = share.popleft()
        if not share:
            del self._shares[copy]
        return span, reason

    def drop(self, object_number: int) -> None:
        """No further span of this object is begun."""
        self._free = deque(one for one in self._free if one.object != object_number)
        for copy, share in list(self._shares.items()):
            left = deque(one for one in share if one.object != object_number)
            if left:
                self._shares[copy] = left
            else:
                del self._shares[copy]

    def clear(self) -> None:
        self._free.clear()
        self._shares.clear()

    def _take_part(self, copy: int, takers: int) -> None:
        count = -(-len(self._free) // takers)
        self._shares[copy] = deque(self._free.popleft() for _ in range(count))

    def _steal(self, copy: int) -> None:
        victim = min(self._shares, key=lambda one: (-len(self._shares[one]), one))
        share = self._shares[victim]
        count = (len(share) + 1) // 2
        stolen = deque(share.pop() for _ in range(count))
        stolen.reverse()
        if not share:
            del self._shares[victim]
        self._shares[copy] = stolen
