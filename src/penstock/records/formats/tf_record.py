"""TFRecord: TensorFlow's frames around records.

A frame is the length (8 bytes), its checksum, the bytes and their checksum. Checksums are masked
CRC-32C. (tensorflow.org/tutorials/load_data/tfrecord)

The standard library lacks CRC-32C (Castagnoli; RFC 3720, appendix B.4), so it is computed here.
Long data is cut into rows of equal length. numpy computes the remainders of all rows side by side,
a column at a time; they are then combined by means of a table that says how a remainder changes
over a row of zeros. All of it is linear: the start value is data too, and leading zeros change
nothing.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

import numpy as np

from penstock.records.formats.forward import Forward
from penstock.records.refusals import too_large, unreadable

_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = 0xFFFFFFFF
_ROW_BYTES: Final = 256
#: From this size on, rows are faster than single bytes.
_ROWS_FROM_BYTES: Final = 16 * 1024


def crc32c(data: bytes) -> int:
    if len(data) >= _ROWS_FROM_BYTES:
        return _by_rows(data) ^ _ALL
    table, crc = _table(), _ALL
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ALL


@cache
def _table() -> tuple[int, ...]:
    """For each remainder of one byte: its value after a byte of zeros."""
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)  # noqa: PLW2901
        entries.append(entry)
    return tuple(entries)


@cache
def _over_a_row() -> tuple[tuple[int, ...], ...]:
    """For each byte of a remainder, by its place: its value after a row of zeros."""
    return tuple(tuple(_over_zeros(byte << 8 * place) for byte in range(256)) for place in range(4))


def _over_zeros(crc: int) -> int:
    table = _table()
    for _ in range(_ROW_BYTES):
        crc = table[crc & 0xFF] ^ crc >> 8
    return crc


def _by_rows(data: bytes) -> int:
    start = bytes(byte ^ 0xFF for byte in data[:4])  # the start value of all ones
    padding = bytes(-len(data) % _ROW_BYTES)
    rows = np.frombuffer(b"".join((padding, start, data[4:])), np.uint8).reshape(-1, _ROW_BYTES)
    table: Any = np.array(_table(), np.uint32)
    states: Any = np.zeros(len(rows), np.uint32)
    for column in rows.T:
        states = table[(states ^ column) & 0xFF] ^ states >> 8
    first, second, third, fourth = _over_a_row()
    crc = 0
    for state in states.tolist():
        crc = (
            first[crc & 0xFF]
            ^ second[crc >> 8 & 0xFF]
            ^ third[crc >> 16 & 0xFF]
            ^ fourth[crc >> 24]
            ^ state
        )
    return crc


_LENGTH: Final = struct.Struct("<Q")
_CHECK: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<8sI")
_MASK_DELTA: Final = 0xA282EAD8
_KIND: Final = "TFRecord"


def next_record(stream: Forward, *, record_bytes_max: int, what: str) -> bytes | None:
    """The next record without its frame; None at the end.

    Raises:
        CallerError: `record-unreadable`, `record-too-large`.
    """
    at = stream.at
    head = stream.take(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise unreadable(what, at, _KIND, "the frame that begins there is cut short")
    packed, check = _HEAD.unpack(head)
    if _masked(packed) != check:
        raise unreadable(what, at, _KIND, "no frame begins there: the length's checksum is wrong")
    [length] = _LENGTH.unpack(packed)
    if length > record_bytes_max:
        raise too_large(what, at, record_bytes_max)
    data = stream.take(length + _CHECK.size)
    if len(data) < length + _CHECK.size:
        raise unreadable(what, at, _KIND, "the frame that begins there is cut short")
    record = data[:length]
    if _masked(record) != _CHECK.unpack_from(data, length)[0]:
        raise unreadable(what, at, _KIND, "the record's checksum is wrong")
    return record


def framed(record: bytes) -> bytes:
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CHECK.pack(_masked(length)), record, _CHECK.pack(_masked(record))))


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
