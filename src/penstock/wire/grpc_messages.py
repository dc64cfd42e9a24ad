"""What gRPC writes into HTTP/2: messages within bodies, deadlines, texts of a status.

Source: gRPC over HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md) and its compression (compression.md).
A message is a byte that says whether it is compressed, its length as u32, big endian, and its
bytes; frames of a body may cut it anywhere. Ours are never compressed, as those of most gRPC
servers.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Final

# Statuses that this module decides (grpc/grpc, doc/statuscodes.md)
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13

#: zlib's window bits by the name of an encoding; gRPC's `deflate` is zlib's format (RFC 1950).
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
#: The value of `grpc-accept-encoding`.
ENCODINGS: Final = b"identity, deflate, gzip"
_IDENTITY: Final = b"identity"

_HEAD: Final = struct.Struct(">BI")
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_S: Final = {b"H": 3_600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
#: What stays in a status message: printable ASCII but `%`, and no space at an end, where HTTP would
#: strip it.
_ESCAPED: Final = re.compile(rb"[^ -$&-~]|^ | $")
#: Bytes of a compressed message that one call of `PackedMessage.inflate` reads.
_PACKED_AT_ONCE: Final = 256 << 10


class GrpcFault(Exception):
    """The call ends with `status`, and `words` as its message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class PackedMessage:
    """A compressed message. Whoever inflates it decides how much of it at once, and at most."""

    __slots__ = ("_bytes_max", "_encoding", "_inflater", "_packed", "_pieces", "_size", "whole")

    def __init__(self, packed: bytes, encoding: bytes, bytes_max: int) -> None:
        """`bytes_max`: of the inflated message."""
        self._packed = memoryview(packed)  #: what has not been read
        self._encoding = encoding
        self._bytes_max = bytes_max
        self._inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._pieces: list[bytes] = []
        self._size = len(packed)
        self.whole = False

    @property
    def held_bytes(self) -> int:
        """What it takes now, compressed and inflated."""
        return self._size

    def inflate(self, size: int) -> None:
        """Inflates up to `size` bytes more. Raises GrpcFault: too large, or broken."""
        inflater = self._inflater
        source: bytes | memoryview = inflater.unconsumed_tail
        if not source:
            source, self._packed = self._packed[:_PACKED_AT_ONCE], self._packed[_PACKED_AT_ONCE:]
        try:
            piece = inflater.decompress(source, size)
        except zlib.error as error:
            raise GrpcFault(INTERNAL, f"a message that is not {self._encoding.decode()}") from error
        self._pieces.append(piece)
        self._size += len(piece)
        self._bytes_max -= len(piece)
        if self._bytes_max < 0:
            raise GrpcFault(RESOURCE_EXHAUSTED, "a message that inflates beyond the bound of one")
        cut_off = not inflater.eof and not source and not piece
        if cut_off or inflater.unused_data or (inflater.eof and self._packed):
            words = f"a message that is not one whole {self._encoding.decode()} stream"
            raise GrpcFault(INTERNAL, words)
        self.whole = inflater.eof

    def message(self) -> bytes:
        """The inflated message, once it is `whole`."""
        assert self.whole
        return b"".join(self._pieces)


#: A smaller piece of a message is copied, so that what it is cut from is not kept for it.
_PIECE_BYTES: Final = 4_096

#: A message as it came.
GrpcMessage = bytes | PackedMessage


class GrpcMessageSplitter:
    """The messages of one body."""

    __slots__ = (
        "_collected", "_compressed", "_encoding", "_head", "_left", "_message_bytes_max", "_pieces",
    )  # fmt: skip

    def __init__(self, message_bytes_max: int, encoding: bytes = _IDENTITY) -> None:
        """`message_bytes_max`: of a message, as sent and inflated. `encoding`: `grpc-encoding`.

        Raises GrpcFault: an unknown encoding; the answer's `grpc-accept-encoding` names the others.
        """
        if encoding != _IDENTITY and encoding not in _WINDOW_BITS:
            raise GrpcFault(UNIMPLEMENTED, f"unknown grpc-encoding {encoding[:40]!r}")
        self._encoding = encoding
        self._message_bytes_max = message_bytes_max
        self._head = b""  #: the beginning of a message's head
        self._left = -1  #: bytes that the message which has begun still needs; -1 = none has
        self._compressed = False
        self._pieces: list[bytearray | memoryview] = []  #: what has come of it
        self._collected = 0  #: bytes of these

    @property
    def held_bytes(self) -> int:
        """What has come of a message that is not complete."""
        head_bytes = _HEAD.size if self._left >= 0 else len(self._head)
        return head_bytes + self._collected

    def feed(self, data: bytes) -> list[GrpcMessage]:
        """The messages that `data` completes. Raises GrpcFault: too large, or broken."""
        if self._left < 0 and not self._head and len(data) >= _HEAD.size:
            compressed, size = _HEAD.unpack_from(data)
            if not compressed and len(data) == _HEAD.size + size <= self._message_bytes_max:
                return [data[_HEAD.size :]]  # as most come
        messages: list[GrpcMessage] = []
        view = memoryview(data)
        while True:
            if self._left < 0:
                begun, view = self._begin(view)
                if not begun:
                    return messages
            size = self._left
            if len(view) < size:
                self._collect(view)
                return messages
            if self._pieces:
                message = b"".join((*self._pieces, view[:size]))
                self._pieces, self._collected = [], 0
            else:
                message = bytes(view[:size])
            view, self._left = view[size:], -1
            if self._compressed:
                messages.append(PackedMessage(message, self._encoding, self._message_bytes_max))
            else:
                messages.append(message)

    def finish(self) -> None:
        """The body has ended. Raises GrpcFault where a message is incomplete."""
        if self._left >= 0 or self._head:
            raise GrpcFault(INTERNAL, "the request ends within a message")

    def _begin(self, view: memoryview) -> tuple[bool, memoryview]:
        """Reads a message's head, and returns what is behind it; False: it is not complete."""
        missing = _HEAD.size - len(self._head)
        if len(view) < missing:
            self._head += view
            return False, view
        compressed, size = _HEAD.unpack(self._head + view[:missing])
        if size > self._message_bytes_max:
            raise _too_large(size, self._message_bytes_max)
        if compressed > 1 or (compressed and self._encoding == _IDENTITY):
            raise GrpcFault(INTERNAL, f"a compressed flag of {compressed} without an encoding")
        self._head, self._left, self._compressed = b"", size, bool(compressed)
        return True, view[missing:]

    def _collect(self, view: memoryview) -> None:
        """Keeps a piece. Small ones go into one buffer: as objects they would take many times as
        much memory as is accounted for."""
        if not view:
            return
        self._left -= len(view)
        self._collected += len(view)
        if len(view) >= _PIECE_BYTES:
            self._pieces.append(view)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += view
        else:
            self._pieces.append(bytearray(view))


def _too_large(size: int, size_max: int) -> GrpcFault:
    return GrpcFault(RESOURCE_EXHAUSTED, f"a message of {size} bytes, larger than {size_max}")


def framed_message(message: bytes) -> bytes:
    """One message of an answer's body."""
    return message_head(message) + message


def message_head(message: bytes) -> bytes:
    """What stands before a message."""
    return _HEAD.pack(0, len(message))


def timeout_s(value: bytes) -> float:
    """Seconds of a `grpc-timeout`: up to eight digits and a unit. Raises GrpcFault."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise GrpcFault(INTERNAL, f"a grpc-timeout that is none: {value[:40]!r}")
    return int(found[1]) * _UNIT_S[found[2]]


def escaped_message(words: str) -> bytes:
    """The value of `grpc-message`: percent-encoded UTF-8."""
    text = words.encode("utf-8", "replace")
    return _ESCAPED.sub(lambda byte: b"%%%02X" % byte[0][0], text)
