"""What is captured of one call: a record, and the parts of a streamed answer until it is complete.

A record refers to bytes that are there already. A streamed answer is its parts in a row, up to
`STREAM_BYTES_MAX`; a longer one is not kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from penstock.core.deployment.deployment import CaptureSpec
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


class CaptureSink(Protocol):
    """Where records go. It never waits."""

    def put(self, record: CaptureRecord) -> None:
        """Takes a record, or drops and counts it where there is no room."""

    def reserve(self, size: int) -> bool:
        """Takes room for a part of a stream; False: there is none."""

    def release(self, size: int) -> None:
        """Gives such room back."""


class StreamCapture:
    """One sampled stream that is under way."""

    __slots__ = ("_keeps", "_parts", "_reserved", "_sink", "record")

    def __init__(self, sink: CaptureSink, record: CaptureRecord) -> None:
        """`record`: of the request, and of the meta that came with the first part."""
        self._sink = sink
        self._parts: list[bytes] = []
        self._reserved = 0
        self._keeps = record.spec.outputs
        self.record = record

    @property
    def answer(self) -> tuple[bytes, ...] | None:
        """The parts; None: the answer is not captured, or was too long."""
        return tuple(self._parts) if self._keeps else None

    def add(self, part: bytes) -> None:
        """The next part of the answer."""
        if not self._keeps:
            return
        size = len(part)
        if self._reserved + size > STREAM_BYTES_MAX or not self._sink.reserve(size):
            self._keeps = False
            self._parts.clear()
            self.release()
            return
        self._reserved += size
        self._parts.append(part)

    def release(self) -> None:
        """Gives the room back: the stream is over. Idempotent."""
        reserved, self._reserved = self._reserved, 0
        if reserved:
            self._sink.release(reserved)
