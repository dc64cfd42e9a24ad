"""What a gateway observes of one streamed answer, for metrics and `explain`.

It measures the time to the first part. Only the engine knows the numbers of tokens; it reports them
in the meta of its last frame (`ReplyMeta.generation`). If a request generates tokens but does not
stream, the engine's own times are used. Nothing here knows a protocol.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson

from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire.frames import Reply

if TYPE_CHECKING:
    from penstock.gateway.dispatch.capture_records import StreamCapture
    from penstock.gateway.dispatch.stream_parts import StreamParts

log = logging.getLogger(__name__)

#: The index of `ReplyMeta.generation` in the array of a reply's meta on the wire.
_GENERATION_AT = 3
#: If an engine reports more tokens than this for one answer, none of its figures is used.
_TOKENS_MAX = 1 << 40
_SECONDS_MAX = 86_400.0


class StreamObserved:
    """One streamed answer, or one that an engine generated."""

    __slots__ = (
        "captured", "chunks", "compared", "first_at", "first_token_s", "paced", "per_token_s",
        "tokens_in", "tokens_out",
    )  # fmt: skip

    #: Time limit where it is not the one of streams: for an answer that nobody waits for; None: it
    #: is.
    timeout_s: float | None = None

    def __init__(self) -> None:
        self.captured: StreamCapture | None = None  #: collects its parts; None: nothing does
        #: collects its parts, as it will be compared with another answer; None: it will not
        self.compared: StreamParts | None = None
        self.chunks = 0
        self.paced = False  #: its client read slowly, so it had to wait
        self.first_at = 0.0  #: monotonic s of the first part; 0 = none yet
        self.tokens_in = 0
        self.tokens_out = 0
        self.first_token_s = 0.0  #: s from the request to the first token
        self.per_token_s = 0.0  #: mean time per token after the first, in s

    @classmethod
    def taking(cls, timeout_s: float) -> StreamObserved:
        """For a request whose caller does not wait on a connection: it may take all the time that
        it asked for."""
        seen = _Patient()
        seen.timeout_s = timeout_s
        return seen

    def ended(self, reply: Reply, received: float, now: float) -> None:
        """The last frame has arrived: reads the engine's figures for the whole answer."""
        said = generation_of(reply.meta)
        if said is None:
            return
        self.tokens_in = _count(said.get("tokens_in"))
        self.tokens_out = _count(said.get("tokens_out"))
        if self.first_at:
            self.first_token_s = self.first_at - received
            decode_s = now - self.first_at
        else:
            engine_s = _seconds(said.get("first_token_s"))
            self.first_token_s = engine_s
            decode_s = (reply.queue_us + reply.run_us) * 1e-6 - engine_s
        if self.tokens_out > 1:
            self.per_token_s = max(0.0, decode_s) / (self.tokens_out - 1)

    def record(self, recorder: VariantRecorder, received: float, *, failed: bool) -> None:
        """Records the answer, once its last byte has left."""
        # Else what they hold would live as long as this does.
        if self.captured is not None:
            self.captured.release()
            self.captured = None
        if self.compared is not None:
            self.compared.release()
            self.compared = None
        if self.first_at:
            recorder.streamed(self.first_at - received)
            if failed:
                recorder.broken()
        if self.tokens_in or self.tokens_out:
            recorder.generated(
                self.tokens_in, self.tokens_out, self.first_token_s, self.per_token_s
            )

    def story(self, received: float) -> dict[str, Any] | None:
        """The part of `explain` about this answer; None if nothing was answered."""
        if not self.first_at and not self.tokens_out:
            return None
        told: dict[str, Any] = {"chunks": self.chunks}
        if self.first_at:
            told["first_chunk_ms"] = round((self.first_at - received) * 1e3, 3)
        if self.tokens_out:
            told["tokens_in"] = self.tokens_in
            told["tokens_out"] = self.tokens_out
            told["time_to_first_token_ms"] = round(self.first_token_s * 1e3, 3)
            told["time_per_output_token_ms"] = round(self.per_token_s * 1e3, 3)
        return told


class _Patient(StreamObserved):
    __slots__ = ("timeout_s",)


def generation_of(meta: bytes) -> dict[str, Any] | None:
    """`ReplyMeta.generation` of a reply. It bypasses the cache of metas, since each is
    different."""
    if not meta:
        return None
    try:
        fields = orjson.loads(meta)
        text = fields[_GENERATION_AT] if len(fields) > _GENERATION_AT else None
        said = orjson.loads(text) if text else None
    except (ValueError, TypeError, LookupError):
        log.error("an instance said of a generation what can't be read: %r", meta[:256])
        return None
    return said if isinstance(said, dict) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= _TOKENS_MAX else 0


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value <= _SECONDS_MAX else 0.0
