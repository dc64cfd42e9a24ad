"""HTTP/2 frames: types, flags, settings, error codes and the head of a frame (RFC 9113, 4, 6, 7).

A frame is a 9-byte head and a payload, big endian:

    payload_bytes u24 | type u8 | flags u8 | reserved 1 bit, stream id 31 bits | payload
"""

from __future__ import annotations

import struct
from typing import Final

#: What a client sends first (3.4); a SETTINGS frame must follow.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: The head: payload bytes << 8 | type, flags, stream id with the reserved bit (`STREAM_ID_MAX`
#: masks it).
HEAD: Final = struct.Struct(">IBI")
HEAD_BYTES: Final = HEAD.size

# Frame types (6). PRIORITY_UPDATE and others above are unknown here, and ignored (5.5).
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

# Flags
END_STREAM: Final = 0x1  #: DATA, HEADERS
ACK: Final = 0x1  #: SETTINGS, PING
END_HEADERS: Final = 0x4  #: HEADERS, CONTINUATION
PADDED: Final = 0x8  #: DATA, HEADERS
PRIORITIZED: Final = 0x20  #: HEADERS: five bytes of priority precede the block

# Settings (6.5.2)
HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

#: Flow-control window of a stream and of the connection until told otherwise (6.9.2).
WINDOW_BYTES_DEFAULT: Final = 65_535
WINDOW_BYTES_MAX: Final = 2**31 - 1  #: 6.9.1
FRAME_BYTES_DEFAULT: Final = 16_384  #: payload; the least that MAX_FRAME_SIZE may be, too (4.2)
FRAME_BYTES_MAX: Final = 2**24 - 1
STREAM_ID_MAX: Final = 2**31 - 1  #: 5.1.1

# Error codes (7)
NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
SETTINGS_TIMEOUT: Final = 0x4
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
CONNECT_ERROR: Final = 0xA
ENHANCE_YOUR_CALM: Final = 0xB
INADEQUATE_SECURITY: Final = 0xC
HTTP_1_1_REQUIRED: Final = 0xD

_SETTING: Final = struct.Struct(">HI")
_U32: Final = struct.Struct(">I")
_GOAWAY: Final = struct.Struct(">II")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame; the payload must fit the peer's MAX_FRAME_SIZE."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame (6.5)."""
    pairs = b"".join(_SETTING.pack(number, value) for number, value in values.items())
    return frame(SETTINGS, 0, 0, pairs)


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Pairs of setting and value, in order; the payload's length is a multiple of six."""
    return list(_SETTING.iter_unpack(payload))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _U32.pack(code))


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _U32.pack(increment))


def go_away(last_stream: int, code: int, words: bytes = b"") -> bytes:
    """A GOAWAY frame (6.8); `words` is debug data that a client may log."""
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last_stream, code) + words)


def read_go_away(payload: bytes) -> tuple[int, int, bytes]:
    """Last stream, error code, debug data; the payload has at least eight bytes."""
    last_stream, code = _GOAWAY.unpack_from(payload)
    return last_stream & STREAM_ID_MAX, code, payload[_GOAWAY.size :]
