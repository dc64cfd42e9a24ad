"""Reads the names at the front of a `ModelInferRequest` without parsing its tensors.

The gateway has to know which model a message is for, and nothing else of it: the instance parses it
once. Field numbers are the protocol's; the encoding is protobuf's (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import CallerError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_MODEL_NAME, _MODEL_VERSION, _ID = 1, 2, 3


class InferNames(NamedTuple):
    """The scalar fields of a request."""

    model: str
    version: str
    id: str


def infer_names(message: bytes) -> InferNames:
    """Raises CallerError for bytes that are no protobuf message."""
    found = {_MODEL_NAME: "", _MODEL_VERSION: "", _ID: ""}
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            size, at = _varint(message, at)
            stop = at + size
            if stop > end:
                raise _malformed()
            if field in found:
                found[field] = _text(message[at:stop])
            at = stop
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        else:
            raise _malformed()
        if not field or at > end:
            raise _malformed()
    return InferNames(found[_MODEL_NAME], found[_MODEL_VERSION], found[_ID])


def stream_answer(reply: bytes) -> bytes:
    """A `ModelStreamInferResponse` around the bytes of a `ModelInferResponse`."""
    return b"\x12" + _encode_varint(len(reply)) + reply


def stream_error(message: str) -> bytes:
    """A `ModelStreamInferResponse` that holds an error."""
    text = message.encode()
    return b"\x0a" + _encode_varint(len(text)) + text


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _malformed()


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> CallerError:
    return CallerError("bad-protobuf", "The message is not a ModelInferRequest.")
