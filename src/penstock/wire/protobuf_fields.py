"""The fields of a protobuf message, without parsing what is in them.

A large message is mostly one field of bytes, such as a tensor. A parser copies it twice; here it is
found where it lies. The encoding is protobuf's (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
#: Most fields of a message itself: tensors and parameters, some dozens in a large one.
_FIELDS_MAX: Final = 4_096


class NotProtobufError(ValueError):
    """The bytes are no message."""


class TooManyFieldsError(NotProtobufError):
    """It may be one, of more fields than are looked at."""


#: Number, kind, where the field begins, where its value begins, where it ends.
ProtobufField = tuple[int, int, int, int, int]


def fields_of(message: bytes) -> Iterator[ProtobufField]:
    """The fields of the message itself, in order. Raises NotProtobufError at the first that is
    none."""
    at, end, count = 0, len(message), 0
    while at < end:
        count += 1
        if count > _FIELDS_MAX:
            raise TooManyFieldsError(f"more than {_FIELDS_MAX} fields")
        begin = at
        tag = message[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(message, begin)
        kind = tag & 7
        if kind == BYTES:
            if at == end:
                raise NotProtobufError("a field without its length")
            size = message[at]
            value = at + 1
            if size >= 0x80:
                size, value = _varint(message, at)
            at = value + size
        elif kind == VARINT:
            value = at
            _, at = _varint(message, at)
        elif kind == FIXED64:
            value, at = at, at + 8
        elif kind == FIXED32:
            value, at = at, at + 4
        else:
            raise NotProtobufError(f"a field of type {kind}")
        if not tag >> 3 or at > end:
            raise NotProtobufError("a field without a number, or one that is cut off")
        yield tag >> 3, kind, begin, value, at


def apart(message: bytes, number: int) -> tuple[bytes, list[memoryview]]:
    """The message without its fields `number`, which are bytes, and the values of these, uncopied.

    What it is to a parser is not checked. Raises NotProtobufError.
    """
    view = memoryview(message)
    values: list[memoryview] = []
    rest: list[memoryview] = []
    kept_from = 0
    for found, kind, begin, value, end in fields_of(message):
        if found == number and kind == BYTES:
            values.append(view[value:end])
            rest.append(view[kept_from:begin])
            kept_from = end
    rest.append(view[kept_from:])
    return b"".join(rest), values


def bytes_head(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of a field."""
    return _encode_varint(number << 3 | BYTES) + _encode_varint(size)


def bytes_field(number: int, data: bytes) -> bytes:
    return bytes_head(number, len(data)) + data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise NotProtobufError("a number that does not end")


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
