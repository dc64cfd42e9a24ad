"""Messages between an instance and one worker process, over a socket pair: one message per batch.

A message is an 8-byte head (payload bytes u32, kind u8, pad, count u16, little endian) and its
payload:

    INIT     JSON settings; the first message, answered by READY or FAILED
    READY    JSON the worker tells of its model
    FAILED   `failures.error_bytes`
    BATCH    count x (meta bytes u32, body bytes u32), then each meta and body
    REPLIES  count x (body bytes u32, content type bytes u32, attribute bytes u32, outcome u32),
             then the three blobs of each; outcome ERROR: the body is `failures.error_bytes`

Both ends are our own code on one machine, but the worker's shares its process with the model's:
what comes from there is bounded, and decoding it is total.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from penstock.errors import ModelError
from penstock.runtimes.base import Payload, PayloadReply
from penstock.runtimes.workers.failures import error_of

HEAD: Final = struct.Struct("<IBxH")

INIT: Final = 1
READY: Final = 2
FAILED: Final = 3
BATCH: Final = 4
REPLIES: Final = 5

PLAIN: Final = 0  #: no custom attributes
WITH_ATTRIBUTES: Final = 1
ERROR: Final = 2

#: Written in place of an item's index while all items of a batch are computed at once.
ALL_ITEMS: Final = 0xFFFFFFFF
BATCH_MAX: Final = 0xFFFF  #: items of one message
#: Bodies of at most 1 GiB together, and what stands around 65,535 of them.
PAYLOAD_BYTES_MAX: Final = 5 << 28

_content_types: dict[bytes, str] = {}


def message(kind: int, payload: bytes, count: int = 0) -> bytes:
    return HEAD.pack(len(payload), kind, count) + payload


def pack_batch(batch: Sequence[Payload]) -> bytes:
    """A BATCH message."""
    sizes: list[int] = []
    parts = [b"", b""]
    for item in batch:
        meta, body = item.meta, item.body
        sizes += (len(meta), len(body))
        parts += (meta, body)
    table = struct.pack(f"<{len(sizes)}I", *sizes)
    parts[0] = HEAD.pack(len(table) + sum(sizes), BATCH, len(batch))
    parts[1] = table
    return b"".join(parts)


def unpack_batch(payload: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """(meta, body) of each item of a BATCH."""
    sizes = struct.unpack_from(f"<{2 * count}I", payload)
    at = 8 * count
    items = []
    for index in range(0, 2 * count, 2):
        middle = at + sizes[index]
        end = middle + sizes[index + 1]
        items.append((payload[at:middle], payload[middle:end]))
        at = end
    return items


def pack_replies(replies: Sequence[tuple[bytes, bytes, bytes, int]]) -> bytes:
    """A REPLIES message out of (body, content type, custom attributes, outcome)."""
    sizes: list[int] = []
    parts: list[bytes] = [b"", b""]
    total = 0
    for body, content_type, attributes, outcome in replies:
        sizes += (len(body), len(content_type), len(attributes), outcome)
        total += len(body) + len(content_type) + len(attributes)
        parts += (body, content_type, attributes)
    table = struct.pack(f"<{len(sizes)}I", *sizes)
    parts[0] = HEAD.pack(len(table) + total, REPLIES, len(replies))
    parts[1] = table
    return b"".join(parts)


def unpack_replies(payload: bytes, count: int) -> list[PayloadReply]:
    """The replies of a REPLIES payload, in the order of the batch."""
    sizes = struct.unpack_from(f"<{4 * count}I", payload)
    at = 16 * count
    replies = []
    for index in range(0, 4 * count, 4):
        middle = at + sizes[index]
        after = middle + sizes[index + 1]
        end = after + sizes[index + 2]
        body, outcome = payload[at:middle], sizes[index + 3]
        if outcome == ERROR:
            replies.append(PayloadReply(error=error_of(body)))
        else:
            content_type = _text(payload[middle:after])
            attributes = None
            if outcome == WITH_ATTRIBUTES:
                attributes = payload[after:end].decode("utf-8", "replace")
            replies.append(PayloadReply(body, content_type, attributes))
        at = end
    return replies


def too_many_bytes() -> ModelError:
    return ModelError(
        "answer-too-large",
        "the answers of a batch are together larger than one message holds",
        hint="Answer with less, or give the model smaller batches.",
    )


def _text(data: bytes) -> str:
    text = _content_types.get(data)
    if text is None:
        if len(_content_types) >= 256:
            _content_types.clear()
        text = _content_types[data] = data.decode("utf-8", "replace")
    return text


class TornMessageError(ValueError):
    """What a worker sent is no message of these."""


class MessageDecoder:
    """Cuts a byte stream into (kind, count, payload). Raises TornMessageError for a huge one."""

    __slots__ = ("_chunks", "_missing")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []  #: of an incomplete message, joined once it is whole
        self._missing = 0

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        if self._chunks:
            self._chunks.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._chunks)
            self._chunks = []
        messages = []
        at, end = 0, len(data)
        while at < end:
            if end - at < 8:
                self._missing = 8 - (end - at)
                break
            size, kind, count = HEAD.unpack_from(data, at)
            stop = at + 8 + size
            if size > PAYLOAD_BYTES_MAX:
                raise TornMessageError(f"a worker claims a message of {size} bytes")
            if stop > end:
                self._missing = stop - end
                break
            messages.append((kind, count, data[at + 8 : stop]))
            at = stop
        if at < end:
            self._chunks = [data[at:]]
        return messages
