"""RecordIO: MXNet's frames around records, which SageMaker's algorithms read.

A frame is a magic number, a word with a flag (3 bits) and a length (29 bits), the bytes, and zeros
up to a multiple of 4. A record that contains the magic number at such a multiple is cut there, the
number is left out, and the flag marks the first, inner and last piece.
(dmlc-core: include/dmlc/recordio.h, src/recordio.cc)
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.errors import CallerError
from penstock.records.formats.forward import Forward
from penstock.records.refusals import too_large, unreadable

_MAGIC: Final = struct.pack("<I", 0xCED7230A)
_HEAD: Final = struct.Struct("<4sI")
_LENGTH_MASK: Final = (1 << 29) - 1
_WHOLE, _FIRST, _INNER, _LAST = range(4)
_KIND: Final = "RecordIO"


def next_record(stream: Forward, *, record_bytes_max: int, what: str) -> bytes | None:
    """The next record without its frame; None at the end.

    Raises:
        CallerError: `record-unreadable`, `record-too-large`.
    """
    begin = stream.at
    pieces: list[bytes] = []
    size = 0
    while True:
        at = stream.at
        head = stream.take(_HEAD.size)
        if not head and not pieces:
            return None
        if len(head) < _HEAD.size:
            raise _torn(what, at)
        magic, word = _HEAD.unpack(head)
        flag, length = word >> 29, word & _LENGTH_MASK
        allowed = (_INNER, _LAST) if pieces else (_WHOLE, _FIRST)
        if magic != _MAGIC or flag not in allowed:
            raise unreadable(what, at, _KIND, "no frame begins there")
        size += length + (len(_MAGIC) if pieces else 0)
        if size > record_bytes_max:
            raise too_large(what, begin, record_bytes_max)
        padding = -length % 4
        data = stream.take(length + padding)
        if len(data) < length + padding:
            raise _torn(what, at)
        pieces.append(data[:length] if padding else data)
        if flag in (_WHOLE, _LAST):
            return _MAGIC.join(pieces)


def framed(record: bytes) -> bytes:
    """The frame, or frames, of a record. Raises `CallerError` (`record-too-large`)."""
    if len(record) > _LENGTH_MASK:
        raise too_large("RecordIO", 0, _LENGTH_MASK)
    pieces = _cut(record)
    flags = [_WHOLE] if len(pieces) == 1 else [_FIRST, *[_INNER] * (len(pieces) - 2), _LAST]
    return b"".join(
        _HEAD.pack(_MAGIC, flag << 29 | len(piece)) + piece + bytes(-len(piece) % 4)
        for flag, piece in zip(flags, pieces, strict=True)
    )


def _cut(record: bytes) -> list[bytes]:
    """The record, cut at magic numbers at multiples of 4, without these."""
    pieces, start, at = [], 0, record.find(_MAGIC)
    while at >= 0:
        if at % 4 == 0:
            pieces.append(record[start:at])
            start = at + len(_MAGIC)
            at = record.find(_MAGIC, start)
        else:
            at = record.find(_MAGIC, at + 1)
    return [*pieces, record[start:]]


def _torn(what: str, at: int) -> CallerError:
    return unreadable(what, at, _KIND, "the frame that begins there is cut short")
