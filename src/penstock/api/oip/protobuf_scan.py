"""Reads the names at the front of a `ModelInferRequest` without parsing its tensors.

The gateway only needs the model's name; the instance parses the message, once. Field numbers are
the protocol's; the encoding is protobuf's (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import CallerError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
#: Most fields of the message itself: tensors and parameters, some dozens in a large one.
_FIELDS_MAX = 4_096
_MODEL_NAME, _MODEL_VERSION, _ID, _PARAMETERS = 1, 2, 3, 4
#: An entry of `parameters` as protobuf writes it: a key, and a value that is true.
_WANTS_FINAL = b"\x0a\x22triton_enable_empty_final_response\x12\x02\x08\x01"
_FINAL = b"\x22\x1b\x0a\x15triton_final_response\x12\x02\x08"


class InferNames(NamedTuple):
    """The scalar fields of a request."""

    model: str
    version: str
    id: str
    wants_final: bool = False  #: an answer in pieces ends with an empty one that marks the end

    def answer_without_outputs(self) -> bytes:
        """A `ModelInferResponse` to the request, without content."""
        fields = ((_MODEL_NAME, self.model), (_MODEL_VERSION, self.version or "1"), (_ID, self.id))
        return b"".join(_field(number, text.encode()) for number, text in fields if text)


def infer_names(message: bytes) -> InferNames:
    """The names. Raises CallerError for bytes that are no protobuf message."""
    found = {_MODEL_NAME: "", _MODEL_VERSION: "", _ID: ""}
    wants_final = False
    at, end, fields = 0, len(message), 0
    while at < end:
        fields += 1
        if fields > _FIELDS_MAX:
            raise CallerError("bad-protobuf", f"The message has more than {_FIELDS_MAX} fields.")
        tag, at = _varint(message, at)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            size, at = _varint(message, at)
            stop = at + size
            if stop > end:
                raise _malformed()
            if field in found:
                found[field] = _text(message[at:stop])
            elif field == _PARAMETERS and message[at:stop] == _WANTS_FINAL:
                wants_final = True
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
    return InferNames(found[_MODEL_NAME], found[_MODEL_VERSION], found[_ID], wants_final)


def stream_answer(reply: bytes) -> bytes:
    """A `ModelStreamInferResponse` around the bytes of a `ModelInferResponse`."""
    return _field(2, reply)


def stream_error(message: str, ident: str = "") -> bytes:
    """A `ModelStreamInferResponse` with an error and the id of its request."""
    error = _field(1, message.encode())
    return error + stream_answer(_field(_ID, ident.encode())) if ident else error


def says_final(reply: bytes) -> bool | None:
    """Whether a `ModelInferResponse` is marked as final; None where it has no mark."""
    if _FINAL not in reply:
        return None
    return _FINAL + b"\x01" in reply


def final_answer(reply: bytes, *, final: bool) -> bytes:
    """A `ModelInferResponse` with a mark whether it is the last piece of its answer."""
    return reply + _FINAL + (b"\x01" if final else b"\x00")


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + _encode_varint(len(data)) + data


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
