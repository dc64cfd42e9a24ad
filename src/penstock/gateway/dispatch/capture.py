"""Data capture at a gateway: keeps what a sampled call received and answered, until it is answered.

The dispatcher calls this for endpoints with a DataCaptureConfig only. A record is passed on once
the answer was given to the client; making lines of it and writing them is the sink's, on threads of
its own. Only calls that succeed are captured, and nothing of a stream that breaks, or whose client
goes away.
"""

from __future__ import annotations

import random

from penstock.core.capture.queue import ANSWER_TOO_LONG, is_sampled
from penstock.core.deployment.deployment import CaptureSpec
from penstock.gateway.dispatch.capture_records import CaptureRecord, CaptureSink, StreamCapture
from penstock.gateway.dispatch.invocation import Invocation
from penstock.metrics.counts.recorder import CAPTURE_DROPPED
from penstock.metrics.item_failures import apart


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

    def _put(self, record: CaptureRecord, answer: tuple[bytes, ...] | None) -> None:
        with apart("capture", record.endpoint):  # the call itself has succeeded
            if record.request is None and answer is None:
                record.recorder.captured(CAPTURE_DROPPED, ANSWER_TOO_LONG)
            else:
                self._sink.put(record._replace(answer=answer))
