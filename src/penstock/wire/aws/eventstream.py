"""Frames of `application/vnd.amazon.eventstream`, in which streamed answers travel.

    total_bytes u32 | headers_bytes u32 | crc32 of those 8 | headers | payload | crc32 of all before

It is big endian, with zlib's CRC-32. A header is name_bytes u8, name, kind u8, value. We write only
string headers; reading knows all ten kinds. A failure before the first frame is an ordinary HTTP
error, a later one is an exception frame, and the stream ends with the body.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from penstock.errors import CallerError, InternalError

#: The bound of botocore's reader: a client would refuse a larger frame.
HEADERS_BYTES_MAX: Final = 128 << 10
PAYLOAD_BYTES_MAX: Final = 24 << 20

CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"

TRUE, FALSE, BYTE, SHORT, INTEGER, LONG, BYTES, STRING, TIMESTAMP, UUID = range(10)

_PRELUDE: Final = struct.Struct(">II")
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_FIXED: Final = {
    BYTE: struct.Struct(">b"),
    SHORT: struct.Struct(">h"),
    INTEGER: struct.Struct(">i"),
    LONG: struct.Struct(">q"),
    TIMESTAMP: struct.Struct(">q"),  # milliseconds since the epoch
    UUID: struct.Struct(">16s"),
}
_OVERHEAD: Final = _PRELUDE.size + 2 * _CRC.size


class EventStreamError(CallerError):
    """The bytes are no event stream."""

    def __init__(self, message: str) -> None:
        super().__init__("eventstream-torn", message)


class Header(NamedTuple):
    """A header's value and its kind on the wire."""

    kind: int
    value: Any


class Message(NamedTuple):
    """One frame."""

    headers: dict[str, Header]
    payload: bytes


def encode(headers: Mapping[str, Header | str], payload: bytes = b"") -> bytes:
    """One frame; a plain string is a string header."""
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


class EventStreamDecoder:
    """Turns the bytes of a stream, split anywhere, into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes.

        Raises:
            EventStreamError: a checksum, a length or a header is wrong; the stream can't continue.
        """
        self._buffer += data
        messages = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    def at_boundary(self) -> bool:
        """Whether no message is half read, as at the end of a valid stream."""
        return not self._buffer

    def _take(self) -> Message | None:
        buffer = self._buffer
        if len(buffer) < _PRELUDE.size + _CRC.size:
            return None
        total, headers_bytes = _PRELUDE.unpack_from(buffer)
        if _CRC.unpack_from(buffer, _PRELUDE.size)[0] != zlib.crc32(buffer[: _PRELUDE.size]):
            raise EventStreamError("The checksum of a frame's head is wrong.")
        if headers_bytes > HEADERS_BYTES_MAX or headers_bytes + _OVERHEAD > total:
            raise EventStreamError(
                f"A frame of {total} bytes can't have {headers_bytes} of headers."
            )
        if total - headers_bytes - _OVERHEAD > PAYLOAD_BYTES_MAX:
            raise EventStreamError(f"A frame of {total} bytes is above the limit.")
        if len(buffer) < total:
            return None
        frame = bytes(buffer[:total])
        del buffer[:total]
        if _CRC.unpack_from(frame, total - _CRC.size)[0] != zlib.crc32(frame[: -_CRC.size]):
            raise EventStreamError("The checksum of a frame is wrong.")
        start = _PRELUDE.size + _CRC.size
        headers = _parse_headers(frame[start : start + headers_bytes])
        return Message(headers, frame[start + headers_bytes : -_CRC.size])


def _framed(headers: bytes, payload: bytes) -> bytes:
    head = _PRELUDE.pack(_OVERHEAD + len(headers) + len(payload), len(headers))
    crc = zlib.crc32(head)
    start = head + _CRC.pack(crc) + headers
    # The checksum continues from the head's, so a large payload is read once and copied once.
    crc = zlib.crc32(payload, zlib.crc32(start))
    return b"".join((start, payload, _CRC.pack(crc)))


def _header(name: str, value: Header | str) -> bytes:
    header = Header(STRING, value) if isinstance(value, str) else value
    encoded = name.encode()
    start = bytes((len(encoded),)) + encoded + bytes((header.kind,))
    if header.kind in (TRUE, FALSE):
        return start
    if header.kind in _FIXED:
        return start + _FIXED[header.kind].pack(header.value)
    raw: bytes = header.value.encode() if header.kind == STRING else header.value
    if len(raw) > 0xFFFF:
        raise InternalError("eventstream-header", f"The header {name} has {len(raw)} bytes.")
    return start + _LENGTH.pack(len(raw)) + raw


def _parse_headers(data: bytes) -> dict[str, Header]:
    headers: dict[str, Header] = {}
    at = 0
    try:
        while at < len(data):
            end = at + 1 + data[at]
            name = data[at + 1 : end].decode()
            kind = data[end]
            value, at = _parse_value(kind, data, end + 1)
            if name in headers:
                raise EventStreamError(f"The header {name!r} comes twice.")
            headers[name] = Header(kind, value)
    except (IndexError, struct.error, UnicodeError) as cause:
        raise EventStreamError("The headers of a frame are malformed.") from cause
    return headers


def _parse_value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in _FIXED:
        return _FIXED[kind].unpack_from(data, at)[0], at + _FIXED[kind].size
    if kind not in (BYTES, STRING):
        raise EventStreamError(f"A header has the unknown kind {kind}.")
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + _LENGTH.size + length
    if end > len(data):
        raise EventStreamError("The headers of a frame are malformed.")
    raw = data[at + _LENGTH.size : end]
    return (raw.decode() if kind == STRING else raw), end


_PART_HEADERS: Final = b"".join(
    _header(name, value)
    for name, value in (
        (":event-type", "PayloadPart"),
        (":content-type", "application/octet-stream"),
        (":message-type", "event"),
    )
)
