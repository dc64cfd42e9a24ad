"""Frames around records, in streams that are read from their start: RecordIO and TFRecord.

RecordIO has MXNet's frames, which SageMaker's algorithms read. A frame is a magic number, a word
with a flag (3 bits) and a length (29 bits), the bytes, and zeros up to a multiple of 4. A record
that contains the magic number at such a multiple is cut there, the number is left out, and the flag
marks the first, inner and last piece. (dmlc-core: include/dmlc/recordio.h, src/recordio.cc)

TFRecord has TensorFlow's. A frame is the length (8 bytes), its checksum, the bytes and their
checksum. Checksums are masked CRC-32C. (tensorflow.org/tutorials/load_data/tfrecord)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import google_crc32c

from penstock.errors import CallerError
from penstock.records.refusals import too_large, unreadable


class Forward:
    """A cursor over chunks. It holds the requested bytes and one chunk."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._used = 0  #: consumed bytes of the chunk
        self.at = 0  #: bytes taken so far

    def take(self, size: int) -> bytes:
        """The next bytes; fewer only at the end. The caller bounds `size`."""
        data = self._chunk[self._used : self._used + size]
        self._used += len(data)
        if len(data) < size:
            pieces, have = [data], len(data)
            while have < size and (chunk := next(self._chunks, b"")):
                self._chunk = chunk
                self._used = min(len(chunk), size - have)
                pieces.append(chunk[: self._used])
                have += self._used
            data = b"".join(pieces)
        self.at += len(data)
        return data


_MAGIC: Final = struct.pack("<I", 0xCED7230A)
_IO_HEAD: Final = struct.Struct("<4sI")
_IO_LENGTH_MASK: Final = (1 << 29) - 1
_WHOLE, _FIRST, _INNER, _LAST = range(4)
_IO_KIND: Final = "RecordIO"


def next_record_io(stream: Forward, *, record_bytes_max: int, what: str) -> bytes | None:
    """The next record without its frame; None at the end.

    Raises:
        CallerError: `record-unreadable`, `record-too-large`.
    """
    begin = stream.at
    pieces: list[bytes] = []
    size = 0
    while True:
        at = stream.at
        head = stream.take(_IO_HEAD.size)
        if not head and not pieces:
            return None
        if len(head) < _IO_HEAD.size:
            raise _torn(what, at)
        magic, word = _IO_HEAD.unpack(head)
        flag, length = word >> 29, word & _IO_LENGTH_MASK
        allowed = (_INNER, _LAST) if pieces else (_WHOLE, _FIRST)
        if magic != _MAGIC or flag not in allowed:
            raise unreadable(what, at, _IO_KIND, "no frame begins there")
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


def record_io_framed(record: bytes) -> bytes:
    """The frame, or frames, of a record. Raises `CallerError` (`record-too-large`)."""
    if len(record) > _IO_LENGTH_MASK:
        raise too_large("RecordIO", 0, _IO_LENGTH_MASK)
    pieces = _cut(record)
    flags = [_WHOLE] if len(pieces) == 1 else [_FIRST, *[_INNER] * (len(pieces) - 2), _LAST]
    return b"".join(
        _IO_HEAD.pack(_MAGIC, flag << 29 | len(piece)) + piece + bytes(-len(piece) % 4)
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
    return unreadable(what, at, _IO_KIND, "the frame that begins there is cut short")


_LENGTH: Final = struct.Struct("<Q")
_CHECK: Final = struct.Struct("<I")
_TF_HEAD: Final = struct.Struct("<8sI")
_MASK_DELTA: Final = 0xA282EAD8
_TF_KIND: Final = "TFRecord"


def next_tf_record(stream: Forward, *, record_bytes_max: int, what: str) -> bytes | None:
    """The next record without its frame; None at the end.

    Raises:
        CallerError: `record-unreadable`, `record-too-large`.
    """
    at = stream.at
    head = stream.take(_TF_HEAD.size)
    if not head:
        return None
    if len(head) < _TF_HEAD.size:
        raise unreadable(what, at, _TF_KIND, "the frame that begins there is cut short")
    packed, check = _TF_HEAD.unpack(head)
    if _masked(packed) != check:
        raise unreadable(
            what, at, _TF_KIND, "no frame begins there: the length's checksum is wrong"
        )
    [length] = _LENGTH.unpack(packed)
    if length > record_bytes_max:
        raise too_large(what, at, record_bytes_max)
    data = stream.take(length + _CHECK.size)
    if len(data) < length + _CHECK.size:
        raise unreadable(what, at, _TF_KIND, "the frame that begins there is cut short")
    record = data[:length]
    if _masked(record) != _CHECK.unpack_from(data, length)[0]:
        raise unreadable(what, at, _TF_KIND, "the record's checksum is wrong")
    return record


def tf_record_framed(record: bytes) -> bytes:
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CHECK.pack(_masked(length)), record, _CHECK.pack(_masked(record))))


def _masked(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
