"""Data capture at a gateway: keeps what a sampled call received and answered, until it is answered.

The dispatcher calls this for endpoints with a DataCaptureConfig only. A record refers to bytes that
are there already; it is passed on once the answer was given to the client, and making lines of it
and writing them is the sink's, on threads of its own. Only calls that succeed are captured.

A streamed answer is captured as its parts in a row, up to `STREAM_BYTES_MAX`; of a longer one only
the request. Nothing is captured of a stream that breaks, or whose client goes away.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple, Protocol

from penstock.core.capture.queue import ANSWER_TOO_LONG, is_sampled
from penstock.core.deployment.deployment import CaptureSpec
from penstock.gateway.dispatch.invocation import Invocation
from penstock.metrics.counts.recorder import CAPTURE_DROPPED, VariantRecorder
from penstock.metrics.item_failures import apart

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

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: what is held, and what fails."""


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


class Captures:
    """The data capture of one gateway."""

    def __init__(self, sink: CaptureSink, rng: random.Random) -> None:
        self._sink = sink
        self._rng = rng

    def sample(
        self, spec: CaptureSpec, invocation: Invocation, reply_meta: bytes
    ) -> CaptureRecord | None:
        """The record of a request that is being answered, before its door lets go of its body.
        None: it is not sampled."""
        if not is_sampled(spec.percentage, self._rng.random()):
            return None
        return CaptureRecord(
            spec,
            invocation.endpoint,
            invocation.variant or "",
            invocation.recorder,
            invocation.meta,
            reply_meta,
            invocation.body if spec.inputs else None,
        )

    def stream(self, record: CaptureRecord) -> StreamCapture:
        """Collects the answer of a sampled request that is answered in parts."""
        return StreamCapture(self._sink, record)

    def answered(self, record: CaptureRecord, answer: bytes) -> None:
        """The whole answer was given to the client."""
        self._put(record, (answer,) if record.spec.outputs else None)

    def ended(self, stream: StreamCapture) -> None:
        """The last part was given to the client."""
        stream.release()
        self._put(stream.record, stream.answer)

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: captured calls that are not written yet."""
        return self._sink.snapshot()

    def _put(self, record: CaptureRecord, answer: tuple[bytes, ...] | None) -> None:
        with apart("capture", record.endpoint):  # the call itself has succeeded
            if record.request is answer is None:
                record.recorder.captured(CAPTURE_DROPPED, ANSWER_TOO_LONG)
            else:
                self._sink.put(record._replace(answer=answer))
