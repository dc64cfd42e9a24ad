"""Batches of requests and their answers, as messages to and from a Python model's worker.

    BATCH    count x (meta bytes u32, body bytes u32), then each meta and body
    REPLIES  count x (body bytes u32, content type bytes u32, attribute bytes u32, outcome u32),
             then the three blobs of each; outcome ERROR: the body is `failures.error_bytes`

Both ends are our own code on one machine, but the worker shares its process with the model's code.
So decoding what comes from there is total: it accepts or refuses any bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import Payload, PayloadReply
from penstock.runtimes.workers.failures import (
    checked_answer,
    error_bytes,
    error_of,
    log_traceback,
)
from penstock.runtimes.workers.wire import HEAD

BATCH: Final = 4
REPLIES: Final = 5

PLAIN: Final = 0  #: no custom attributes
WITH_ATTRIBUTES: Final = 1
ERROR: Final = 2

#: Replaces an item's index while all items of a batch are computed at once.
ALL_ITEMS: Final = 0xFFFFFFFF

Answer = tuple[bytes, bytes, bytes, int]  #: body, content type, custom attributes, outcome

_content_types: dict[bytes, str] = {}


def failed(error: BaseException) -> Answer:
    """The answer for anything that the model's code raised; the traceback goes to the log."""
    if not isinstance(error, PenstockError):
        log_traceback(error)
    return error_bytes(error), b"", b"", ERROR


def answered(body: Any, content_type: Any, attributes: Any = None) -> Answer:
    """The answer with what the model's code returned. Raises ModelError if it is none."""
    outcome = PLAIN if attributes is None else WITH_ATTRIBUTES
    given = "" if attributes is None else attributes
    return *checked_answer(body, content_type, given), outcome


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


def pack_replies(replies: Sequence[Answer]) -> bytes:
    """A REPLIES message."""
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
