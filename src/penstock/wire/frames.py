"""The binary frames between a gateway (or the control plane) and an instance.

One connection carries many requests at once. A frame is a 16-byte head and a payload, little
endian:

    payload_bytes u32 | kind u8 | flags u8 | meta_bytes u16 | id u64 | payload

`id` names a request on its connection (data frames) or a call (control frames). This module turns
bytes into values and back; it knows neither sockets nor policy. Both sides are Penstock's
processes, but every frame is bounded and checked: a broken head raises `FrameError`, and then the
connection is closed. A broken head that looks valid can claim no more than its kind's bound, and
`StallWatch` detects a claimed payload that takes too long to arrive.

To an instance
    INVOKE          payload = copy u32, deadline_ms u32 (0 = none, from receipt), priority u8,
                    meta (meta_bytes of `RequestMeta`), body; flags ALONE: workers have died under
                    it, and it must not run together with another such request
    CANCEL          no payload; nobody wants the answer any more, and none follows
    PACE            no payload; the client reads its answer slowly: the next CHUNK is to wait (flags
                    WAIT), or need not wait any more. An answer that can't wait ignores it.
    CONTROL         payload = JSON {"op": ...}; answered by CONTROL_REPLY with the same id
From an instance
    REPLY           payload = status u16, batch_rows u16, lane u8, reason u8, queue_us u32,
                    run_us u32, lane_us u32, meta (`ReplyMeta`), body. The last frame of its id.
    CHUNK           payload = body bytes; the answer goes on (flags FIRST on the first one, which
                    carries `ReplyMeta` as meta)
    END             payload as REPLY with an empty body: the end of a streamed answer
    ERROR           payload as REPLY, body = JSON of `PenstockError.to_dict()`. Last of its id.
    RETURNED        payload = reason (utf-8): not answered, without any result that the client could
                    have seen; the gateway may send it to another copy.
                    `core.blame.poison_requests` names the reasons that count against the request.
                    Last of its id.
    CONTROL_REPLY   payload = JSON {"ok": true, ...} or {"error": {...}}
    COUNTS          id 0, payload = pairs of copy u32 and count u32: requests of other connections
                    that these copies have in flight, where the number has changed. Sent only on
                    request, after the replies of the same write.
    EVENT           id 0, payload = JSON {"event": ...}: something changed (a copy died, came back)

A frame that takes too long to arrive had a broken head, or its sender has stopped. A broken head
that looks valid makes its reader take all that follows for its payload, so the connection would be
deaf for that long. Arriving bytes prove nothing, since they may be the frames that are swallowed.
So each frame has a time limit.

Time is counted in looks, about one per second, and not in seconds. After a stop of this process
itself (its machine slept, a debugger held it) there is one look; the process then reads what has
arrived, and drops no connection for it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from penstock.errors import InternalError

HEAD: Final = struct.Struct("<IBBHQ")
INVOKE_HEAD: Final = struct.Struct("<IIB")
REPLY_HEAD: Final = struct.Struct("<HHBBIII")

INVOKE: Final = 1
CANCEL: Final = 2
CONTROL: Final = 3
PACE: Final = 4
REPLY: Final = 32
CHUNK: Final = 33
END: Final = 34
ERROR: Final = 35
RETURNED: Final = 36
CONTROL_REPLY: Final = 37
EVENT: Final = 38
COUNTS: Final = 39

FIRST: Final = 1  #: flag of the first CHUNK
ALONE: Final = 1  #: flag of INVOKE
WAIT: Final = 1  #: flag of PACE

#: No door's body limit is larger; a larger length is a broken stream, not a request.
PAYLOAD_BYTES_MAX: Final = 1 << 30
#: Control calls and events are JSON about copies: names, settings, an error's text.
CONTROL_BYTES_MAX: Final = 64 << 20
#: Bound of a reason code, and of the cause of a worker's death.
RETURNED_BYTES_MAX: Final = 1 << 20
#: Room for many times as many copies as an instance has.
COUNTS_BYTES_MAX: Final = 1 << 20
_FLAGS_MAX: Final = FIRST
_COUNT: Final = struct.Struct("<II")


def _bounds(bytes_max_by_kind: dict[int, int]) -> tuple[int, ...]:
    return tuple(bytes_max_by_kind.get(kind, -1) for kind in range(256))


#: Largest payload by kind, of frames to an instance; -1 = no such kind.
TO_INSTANCE: Final = _bounds(
    {INVOKE: PAYLOAD_BYTES_MAX, CANCEL: 0, CONTROL: CONTROL_BYTES_MAX, PACE: 0}
)
#: The same for frames from an instance.
FROM_INSTANCE: Final = _bounds(
    {
        REPLY: PAYLOAD_BYTES_MAX,
        CHUNK: PAYLOAD_BYTES_MAX,
        END: PAYLOAD_BYTES_MAX,
        ERROR: PAYLOAD_BYTES_MAX,
        RETURNED: RETURNED_BYTES_MAX,
        CONTROL_REPLY: CONTROL_BYTES_MAX,
        EVENT: CONTROL_BYTES_MAX,
        COUNTS: COUNTS_BYTES_MAX,
    }
)
EITHER_WAY: Final = tuple(map(max, TO_INSTANCE, FROM_INSTANCE))
_IDENT_MAX: Final = (1 << 64) - 1

#: Reasons for which a batch left, as one byte each. The names are the batcher's reason codes; an
#: answer from a cache left in no batch.
BATCH_REASONS: Final = (
    "none",
    "batch-full",
    "waited-enough",
    "preferred-size",
    "lane-free",
    "deadline-near",
    "single",
    "draining",
    "service-level",
    "cache-hit",
    "half-of-callers",
)
BATCH_REASON_CODES: Final = {name: code for code, name in enumerate(BATCH_REASONS)}


class FrameError(InternalError):
    """The byte stream is not made of frames: close the connection."""

    def __init__(self, message: str) -> None:
        super().__init__("frame-torn", message, hint="Both ends must run the same version.")


#: Header with a caller's or a model's own words, in both directions.
CUSTOM_ATTRIBUTES: Final = "x-amzn-sagemaker-custom-attributes"


class RequestMeta(NamedTuple):
    """What a model may know about a request besides its body. None where the caller gave no
    value."""

    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    inference_id: str | None = None
    target_model: str | None = None
    session_id: str | None = None
    json_header_bytes: int | None = None  #: length of the JSON in the protocol's binary extension
    door: str = "runtime"  #: front door of the request: runtime | oip | oip-grpc | openai | admin
    parameters: str | None = None  #: JSON of the door's own, for example the requested version
    traceparent: str | None = None  #: W3C Trace Context of the span that contains the model's run
    tracestate: str | None = None
    target_container: str | None = None  #: hostname of the container that is to answer

    def headers(self) -> dict[str, str]:
        """The headers that SageMaker's container contract documents."""
        named = (
            ("content-type", self.content_type),
            ("accept", self.accept),
            (CUSTOM_ATTRIBUTES, self.custom_attributes),
            ("x-amzn-sagemaker-inference-id", self.inference_id),
            ("x-amzn-sagemaker-target-model", self.target_model),
            ("x-amzn-sagemaker-session-id", self.session_id),
            ("traceparent", self.traceparent),
            ("tracestate", self.tracestate),
        )
        return {name: value for name, value in named if value is not None}


class ReplyMeta(NamedTuple):
    """What the caller gets besides the body."""

    content_type: str | None = None
    custom_attributes: str | None = None
    json_header_bytes: int | None = None
    generation: str | None = None  #: JSON, an engine's report about a whole generated answer
    spans: str | None = None  #: JSON, spans inside the instance, for a request that is traced


def _layout() -> str:
    kinds = (f"{kind} {most}" for kind, most in enumerate(EITHER_WAY) if most >= 0)
    heads = (HEAD.format, INVOKE_HEAD.format, REPLY_HEAD.format)
    names = (*RequestMeta._fields, "|", *ReplyMeta._fields, "|", *BATCH_REASONS)
    return hashlib.sha256("\n".join((*heads, *kinds, *names)).encode()).hexdigest()[:8]


#: Changes with every change of the frames' layout: both ends of a connection need the same.
LAYOUT: Final = _layout()

_REQUEST_CACHE_MAX = 1024
_CACHED_BYTES_MAX = 4096
_request_meta_by_bytes: dict[bytes, RequestMeta] = {}
_reply_meta_by_bytes: dict[bytes, ReplyMeta] = {}


def encode_request_meta(meta: RequestMeta) -> bytes:
    """JSON array without trailing nulls. Callers on the hot path keep the bytes of common metas."""
    return _encode(list(meta))


def decode_request_meta(data: bytes) -> RequestMeta:
    """Inverse of `encode_request_meta`. Repeated metas are parsed once; their cache is bounded."""
    meta = _request_meta_by_bytes.get(data)
    if meta is None:
        meta = RequestMeta(*orjson.loads(data)) if data else RequestMeta()
        if meta.traceparent is not None or len(data) > _CACHED_BYTES_MAX:
            return meta  # unique to its request, or too large to be kept
        if len(_request_meta_by_bytes) >= _REQUEST_CACHE_MAX:
            _request_meta_by_bytes.clear()
        _request_meta_by_bytes[data] = meta
    return meta


def encode_reply_meta(meta: ReplyMeta) -> bytes:
    return _encode(list(meta))


def decode_reply_meta(data: bytes) -> ReplyMeta:
    """As `decode_request_meta`, for replies. Raises FrameError for invalid bytes."""
    meta = _reply_meta_by_bytes.get(data)
    if meta is None:
        meta = _checked_reply_meta(data) if data else ReplyMeta()
        if meta.generation is not None or meta.spans is not None:
            return meta  # unique to its request, so not cached
        if len(_reply_meta_by_bytes) >= _REQUEST_CACHE_MAX:
            _reply_meta_by_bytes.clear()
        _reply_meta_by_bytes[data] = meta
    return meta


def _checked_reply_meta(data: bytes) -> ReplyMeta:
    try:
        fields = orjson.loads(data)
        meta = ReplyMeta(*fields)
    except (ValueError, TypeError):
        raise FrameError(f"the meta of a reply can't be read: {data[:256]!r}") from None
    texts = (meta.content_type, meta.custom_attributes, meta.generation, meta.spans)
    if (
        not isinstance(fields, list)
        or not all(isinstance(text, str | None) for text in texts)
        or not isinstance(meta.json_header_bytes, int | None)
    ):
        raise FrameError(f"the meta of a reply has fields of a wrong kind: {data[:256]!r}")
    return meta


def _encode(fields: list[object]) -> bytes:
    while fields and fields[-1] is None:
        fields.pop()
    data = orjson.dumps(fields)
    if len(data) > 0xFFFF:
        raise FrameError(f"the head of a request takes {len(data)} bytes, 65535 at most")
    return data


def encode(
    kind: int, ident: int, payload: bytes = b"", *, flags: int = 0, meta_bytes: int = 0
) -> bytes:
    """One whole frame."""
    return HEAD.pack(len(payload), kind, flags, meta_bytes, ident) + payload


def encode_invoke(
    ident: int,
    copy: int,
    deadline_ms: int,
    priority: int,
    meta: bytes,
    body: bytes,
    *,
    flags: int = 0,
) -> bytes:
    """An INVOKE frame. `deadline_ms` is the remaining time of the request, 0 for none."""
    return b"".join(
        (
            HEAD.pack(9 + len(meta) + len(body), INVOKE, flags, len(meta), ident),
            INVOKE_HEAD.pack(copy, deadline_ms, priority),
            meta,
            body,
        )
    )


def encode_reply(
    ident: int,
    *,
    kind: int = REPLY,
    status: int = 200,
    batch_rows: int = 0,
    lane: int = 0,
    reason: int = 0,
    queue_us: int = 0,
    run_us: int = 0,
    lane_us: int = 0,
    meta: bytes = b"",
    body: bytes = b"",
) -> bytes:
    """A REPLY, END or ERROR frame."""
    return b"".join(
        (
            HEAD.pack(REPLY_HEAD.size + len(meta) + len(body), kind, 0, len(meta), ident),
            REPLY_HEAD.pack(status, batch_rows, lane, reason, queue_us, run_us, lane_us),
            meta,
            body,
        )
    )


def encode_counts(counts: Iterable[tuple[int, int]]) -> bytes:
    """A COUNTS frame of (copy, count)."""
    return encode(COUNTS, 0, b"".join(_COUNT.pack(*pair) for pair in counts))


def decode_counts(payload: bytes) -> list[tuple[int, int]]:
    """The (copy, count) pairs. Raises FrameError for an incomplete pair."""
    if len(payload) % _COUNT.size:
        raise FrameError("counts end in the middle of one")
    return list(_COUNT.iter_unpack(payload))


class Reply(NamedTuple):
    """The decoded payload of REPLY, END or ERROR."""

    status: int
    batch_rows: int
    lane: int
    reason: int
    queue_us: int
    run_us: int
    lane_us: int  #: the request's own share of lane time: its rows' share of each run
    meta: bytes
    body: bytes


def decode_reply(payload: bytes, meta_bytes: int) -> Reply:
    """The reply. Raises FrameError where the payload has no room for its head and meta."""
    cut = REPLY_HEAD.size + meta_bytes
    if cut > len(payload):
        raise FrameError("a reply is shorter than its head")
    head = REPLY_HEAD.unpack_from(payload)
    return Reply._make((*head, payload[REPLY_HEAD.size : cut], payload[cut:]))


class Invoke(NamedTuple):
    """The decoded payload of INVOKE."""

    copy: int
    deadline_ms: int
    priority: int
    meta: bytes
    body: bytes


def decode_invoke(payload: bytes, meta_bytes: int) -> Invoke:
    head = INVOKE_HEAD.unpack_from(payload)
    cut = 9 + meta_bytes
    return Invoke._make((*head, payload[9:cut], payload[cut:]))


class Frame(NamedTuple):
    kind: int
    flags: int
    meta_bytes: int
    ident: int
    payload: bytes


class FrameDecoder:
    """Cuts a byte stream into frames; keeps at most one incomplete frame.

    Attributes:
        ident_max: a frame with a larger id is invalid; set by the code that assigns ids.
        begun: number of incomplete frames so far; the present one, if any, is the last of them.
    """

    __slots__ = ("_bounds", "_chunks", "_missing", "_rest", "begun", "ident_max")

    def __init__(self, bounds: tuple[int, ...] = EITHER_WAY) -> None:
        """`bounds`: largest payloads for the direction that is read."""
        self._bounds = bounds
        self._rest = b""
        self._chunks: list[bytes] = []  #: pieces of a large frame, joined once it is whole
        self._missing = 0  #: bytes to wait for before joining is worth it
        self.ident_max = _IDENT_MAX
        self.begun = 0

    @property
    def between_frames(self) -> bool:
        """Whether the next byte begins a frame."""
        return not self._rest and not self._chunks

    @property
    def awaited_bytes(self) -> int:
        """Bytes that the incomplete frame still needs, as far as its head shows."""
        return max(0, self._missing) if self._chunks else 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames completed by `data`. Raises FrameError on an impossible head."""
        if self._chunks:
            missing = self._missing
            self._missing -= len(data)
            if self._missing > 0:
                self._chunks.append(data)
                return
            yield self._whole(memoryview(data)[:missing])
            data = data[missing:]
        elif self._rest:
            data = self._rest + data
            self._rest = b""
        at, end = 0, len(data)
        unpack = HEAD.unpack_from
        bounds, ident_max = self._bounds, self.ident_max
        while end - at >= 16:
            size, kind, flags, meta_bytes, ident = unpack(data, at)
            if size > bounds[kind] or meta_bytes > size or ident > ident_max or flags > _FLAGS_MAX:
                raise FrameError(
                    f"a frame of kind {kind} claims id {ident}, flags {flags}, {size} payload bytes"
                    f" and {meta_bytes} meta bytes"
                )
            stop = at + 16 + size
            if stop > end:
                if at:
                    data = data[at:]
                self._chunks = [data]
                self._missing = stop - end
                self.begun += 1
                return
            yield Frame(kind, flags, meta_bytes, ident, data[at + 16 : stop])
            at = stop
        self._rest = data[at:]
        if self._rest:
            self.begun += 1

    def _whole(self, last: memoryview) -> Frame:
        """The frame of several pieces: its payload is copied once."""
        first = self._chunks[0]
        _, kind, flags, meta_bytes, ident = HEAD.unpack_from(first)
        payload = b"".join((memoryview(first)[HEAD.size :], *self._chunks[1:], last))
        self._chunks = []
        return Frame(kind, flags, meta_bytes, ident, payload)


#: s between two looks.
LOOK_S: Final = 1.0
#: A frame is written at once: if nothing of its rest arrives for this long, nothing will.
LOOKS_MAX: Final = 10
#: Far below the speed of a socket between two processes; the largest frame gets 64 s more, which
#: is longer than any answer may take.
BYTES_PER_LOOK: Final = 16 << 20


class StallWatch:
    """Watches the incomplete frame of one decoder."""

    __slots__ = ("_begun", "_decoder", "_looks", "_looks_max")

    def __init__(self, decoder: FrameDecoder) -> None:
        self._decoder = decoder
        self._begun = 0
        self._looks = 0
        self._looks_max = 0

    def look(self) -> bool:
        """True: drop the connection. Call it every `LOOK_S` while a frame is incomplete."""
        decoder = self._decoder
        if decoder.between_frames:
            return False
        if decoder.begun != self._begun:
            self._begun = decoder.begun
            self._looks = 0
            self._looks_max = LOOKS_MAX + decoder.awaited_bytes // BYTES_PER_LOOK
        self._looks += 1
        return self._looks > self._looks_max
