"""Messages between an instance and a worker process, over a socket pair.

A message is an 8-byte head (payload bytes u32, kind u8, pad, count u16, little endian) and its
payload. Every worker knows three kinds; each kind of worker has others of its own:

    INIT     JSON settings; the first message, answered by READY or FAILED
    READY    JSON with the worker's report about its model
    FAILED   `failures.error_bytes`

Messages from a process with a model's code are bounded. Imports the standard library alone: an
engine may run in another interpreter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

HEAD: Final = struct.Struct("<IBxH")

INIT: Final = 1
READY: Final = 2
FAILED: Final = 3

#: Bodies of at most 1 GiB together, and the overhead of 65,535 of them.
PAYLOAD_BYTES_MAX: Final = 5 << 28


def message(kind: int, payload: bytes) -> bytes:
    return HEAD.pack(len(payload), kind, 0) + payload


def read_messages(stream: Any) -> Iterator[tuple[int, int, bytes]]:
    """(kind, count, payload) from a blocking binary stream until it ends."""
    while len(head := stream.read(HEAD.size)) == HEAD.size:
        size, kind, count = HEAD.unpack(head)
        payload = stream.read(size)
        if len(payload) < size:
            return
        yield kind, count, payload


class TornMessageError(ValueError):
    """The worker sent bytes that are no valid message."""


class MessageDecoder:
    """Cuts a byte stream into (kind, count, payload). Raises TornMessageError for a huge one."""

    __slots__ = ("_chunks", "_missing")

    def __init__(self) -> None:
        #: Parts of an incomplete message, joined once it is complete
        self._chunks: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        messages = []
        if self._chunks:
            missing = self._missing
            self._missing -= len(data)
            if self._missing > 0:
                self._chunks.append(data)
                return []
            if len(self._chunks[0]) >= HEAD.size:  # the payload of a large one is copied once
                messages.append(self._whole(memoryview(data)[:missing]))
                data = data[missing:]
            else:
                data = b"".join((*self._chunks, data))
            self._chunks = []
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

    def _whole(self, last: memoryview) -> tuple[int, int, bytes]:
        first = self._chunks[0]
        _, kind, count = HEAD.unpack_from(first)
        return kind, count, b"".join((memoryview(first)[HEAD.size :], *self._chunks[1:], last))
