"""Frames of `application/vnd.amazon.eventstream`, in which streamed answers travel.

    total_bytes u32 | headers_bytes u32 | crc32 of those 8 | headers | payload | crc32 of all before

It is big endian, with zlib's CRC-32. A header is name_bytes u8, name, kind u8, value. We write
string headers alone; whoever reads frames has botocore's reader. A failure before the first frame
is an ordinary HTTP error, a later one is an exception frame, and the stream ends with the body.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

#: The bound of botocore's reader: a client would refuse a larger frame.
PAYLOAD_BYTES_MAX: Final = 24 << 20

CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"

_PRELUDE: Final = struct.Struct(">II")
_CRC: Final = struct.Struct(">I")
#: Before a header's value: that it is a string, and its length.
_STRING: Final = struct.Struct(">BH")
_STRING_KIND: Final = 7
_OVERHEAD: Final = _PRELUDE.size + 2 * _CRC.size


def encode(headers: Mapping[str, str], payload: bytes = b"") -> bytes:
    """One frame."""
    return _framed(b"".join(_header(name, value) for name, value in headers.items()), payload)


def payload_part(chunk: bytes) -> bytes:
    """The frame of one piece of a streamed answer: raw bytes, cut anywhere."""
    if len(chunk) > PAYLOAD_BYTES_MAX:
        pieces = range(0, len(chunk), PAYLOAD_BYTES_MAX)
        return b"".join(payload_part(chunk[at : at + PAYLOAD_BYTES_MAX]) for at in pieces)
    return _framed(_PART_HEADERS, chunk)


def model_stream_error(message: str, *, error_code: str = "StreamBroken") -> bytes:
    """The last frame of an answer that the model broke off.

    Args:
        error_code: StreamBroken, or ModelInvocationTimeExceeded for one that took too long.
    """
    return exception("ModelStreamError", {"Message": message, "ErrorCode": error_code})


def internal_stream_failure(message: str) -> bytes:
    """The last frame of an answer that the server broke off."""
    return exception("InternalStreamFailure", {"Message": message})


def exception(exception_type: str, members: dict[str, Any]) -> bytes:
    """The frame of a modelled error; the body ends after it."""
    headers = {
        ":exception-type": exception_type,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return encode(headers, orjson.dumps(members))


def _framed(headers: bytes, payload: bytes) -> bytes:
    head = _PRELUDE.pack(_OVERHEAD + len(headers) + len(payload), len(headers))
    crc = zlib.crc32(head)
    start = head + _CRC.pack(crc) + headers
    # The checksum continues from the head's, so a large payload is read once and copied once.
    crc = zlib.crc32(payload, zlib.crc32(start))
    return b"".join((start, payload, _CRC.pack(crc)))


def _header(name: str, value: str) -> bytes:
    encoded, text = name.encode(), value.encode()
    return bytes((len(encoded),)) + encoded + _STRING.pack(_STRING_KIND, len(text)) + text


_PART_HEADERS: Final = b"".join(
    _header(name, value)
    for name, value in (
        (":event-type", "PayloadPart"),
        (":content-type", "application/octet-stream"),
        (":message-type", "event"),
    )
)
