"""What is captured of one call: a record, and the parts of a streamed answer until it is complete.

A record refers to bytes that are there already. A streamed answer is its parts in a row, up to
`STREAM_BYTES_MAX`; a longer one is not kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from penstock.core.deployment.deployment import CaptureSpec
from penstock.gateway.dispatch.stream_parts import PartsRoom, StreamParts
from penstock.metrics.counts.recorder import VariantRecorder

#: Some 250,000 tokens: hardly an answer of a language model is longer.
STREAM_BYTES_MAX: Final = 1 << 20


class CaptureRecord(NamedTuple):
    """A captured call. None: that part is not captured."""

    spec: CaptureSpec
    endpoint: str
    variant: str
    recorder: VariantRecorder  #: counts what becomes of it
    request_meta: bytes  #: wire form of frames.RequestMeta
    reply_meta: bytes  #: wire form of frames.ReplyMeta
    request: bytes | None
    answer: tuple[bytes, ...] | None = None  #: its parts in a row

    @property
    def size(self) -> int:
        """The bytes that it refers to."""
        parts = (self.request_meta, self.reply_meta, self.request or b"", *(self.answer or ()))
        return sum(map(len, parts))


class CaptureSink(PartsRoom, Protocol):
    """Where records go. It never waits."""

    def put(self, record: CaptureRecord) -> None:
        """Takes a record, or drops and counts it where there is no room."""


class StreamCapture(StreamParts):
    """One sampled stream that is under way."""

    __slots__ = ("record",)

    def __init__(self, sink: CaptureSink, record: CaptureRecord) -> None:
        """`record`: of the request, and of the meta that came with the first part."""
        super().__init__(sink, STREAM_BYTES_MAX, keeps=record.spec.outputs)
        self.record = record
