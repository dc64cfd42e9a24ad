"""TFRecord: TensorFlow's frames around records.

A frame is the length (8 bytes), its checksum, the bytes and their checksum. Checksums are masked
CRC-32C. (tensorflow.org/tutorials/load_data/tfrecord)
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.records.formats.forward import Forward
from penstock.records.refusals import too_large, unreadable

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
    import google_crc32c  # noqa: PLC0415 - few jobs read this format

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
