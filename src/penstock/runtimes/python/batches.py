"""Messages to and from a Python model's worker: batches of requests, and their answers.

    BATCH    count x (meta bytes u32, body bytes u32), then each meta and body
    REPLIES  count x (body bytes u32, content type bytes u32, attribute bytes u32, outcome u32),
             then the three blobs of each; outcome ERROR: the body is `failures.error_bytes`

A worker that several models share has jobs, which are done one after the other, in order, and
answered with one message each. A job is two messages: FOR names the model and the job's number, the
next one is the job itself. Between jobs a model's METRICS may come, behind a FOR with its number:

    FOR      model u32, number u32
    LOAD     JSON: content of `runtime.init_message`, its environment, where its output goes;
             answered by LOADED, JSON: growth_bytes, libraries_bytes, own_bytes; or by NOT_LOADED,
             an error's bytes
    UNLOAD   nothing; answered by UNLOADED, JSON: own_bytes
    BATCH    as above

Both ends are our own code on one machine, but the worker shares its process with the model's code.
So decoding what comes from there is total: it accepts or refuses any bytes.

In memory that both processes share (`Busy`), the worker writes what it began last, and the instance
marks requests.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
FOR: Final = 10
LOAD: Final = 11
LOADED: Final = 12
NOT_LOADED: Final = 13
UNLOAD: Final = 14
UNLOADED: Final = 15
RESPONSE: Final = 16  #: see `triton_wire`
METRICS: Final = 17  #: JSON of metrics that the model's code has changed

JOB: Final = struct.Struct("<II")  #: payload of FOR

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
    parts = [part for item in batch for part in (item.meta, item.body)]
    return _packed(BATCH, len(batch), list(map(len, parts)), parts)


def _packed(kind: int, count: int, numbers: Sequence[int], parts: Sequence[bytes]) -> bytes:
    table = struct.pack(f"<{len(numbers)}I", *numbers)
    head = HEAD.pack(len(table) + sum(map(len, parts)), kind, count)
    return b"".join((head, table, *parts))


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
    numbers: list[int] = []
    parts: list[bytes] = []
    for *blobs, outcome in replies:
        numbers += (*map(len, blobs), outcome)
        parts += blobs
    return _packed(REPLIES, len(replies), numbers, parts)


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


_BUSY: Final = struct.Struct("<III")
_BUSY_WORDS: Final = 3
#: Requests with marks of their own, in the rest of the page; slot 0 is nobody's.
SLOTS_MAX: Final = 1000
CANCELLED: Final = 1  #: nobody wants the answer any more
HELD: Final = 2  #: its reader is slow: the next response is to wait


class Busy:
    """What a worker began last, in memory that it shares with the instance, at either end."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("I")

    def begin(self, number: int = 0, model: int = 0) -> None:
        """`number`: the job's, of a worker that has several models."""
        self._words[2] = 0
        self._words[1] = model
        self._words[0] = number

    def item(self, index: int) -> None:
        """The item of the batch that is computed now; `ALL_ITEMS`: all at once."""
        self._words[2] = index

    def mark(self, slot: int, marks: int) -> None:
        """Sets the marks of a request: `CANCELLED`, `HELD`, both, or none."""
        self._words[_BUSY_WORDS + slot] = marks

    def marks(self, slot: int) -> int:
        return self._words[_BUSY_WORDS + slot]

    def read(self) -> tuple[int, int, int]:
        """(number, model, item)."""
        number, model, item = _BUSY.unpack(self._memory[: _BUSY.size])
        return number, model, item


@contextmanager
def shared_memory() -> Iterator[tuple[int, Busy]]:
    """New memory, and the descriptor by which a worker that is started meanwhile gets it."""
    descriptor = os.memfd_create("penstock-progress")
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        yield descriptor, Busy(descriptor)
    finally:
        os.close(descriptor)
