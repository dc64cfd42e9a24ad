"""What a stranger may send to the HTTP/2 machine, in the shapes that cost a careless one most."""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import DataReceived, RequestReceived
from penstock.wire.http2.frames import END_HEADERS, END_STREAM, frame

_READ_BYTES = 64 * 1024  #: as much as one read of a socket gives
_START = frames.PREFACE + frame(frames.SETTINGS, 0, 0)
_GET = b"\x82\x86\x84\x01\x01a"  #: GET http / of the authority `a`, nothing of it indexed
_STATUS = ((b":status", b"200"),)


def _requests(of_stream: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        sent, stream = bytearray(_START), 1
        while len(sent) < size:
            sent += of_stream(stream)
            stream += 2
        return bytes(sent)

    return make


def _head(block: bytes) -> Callable[[int], bytes]:
    return lambda stream: frame(frames.HEADERS, END_HEADERS | END_STREAM, stream, block)


def _behind(first: bytes, again: bytes) -> Callable[[int], bytes]:
    return lambda size: _START + first + again * (size // len(again))


_OPEN = frame(frames.HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x01\x01a")
_PIECES = frame(frames.HEADERS, END_STREAM, 1, _GET)
#: A field of 3 kB in the table, which the next byte of a block names
_LARGE = b"\x40\x01x\x7f\x81\x17" + b"v" * 3_072
SHAPES: dict[str, Callable[[int], bytes]] = {
    "requests": _requests(_head(_GET)),
    "requests of references": _requests(_head(_GET + _LARGE + b"\xbe" * 4)),
    "references beyond the bound": _requests(_head(_GET + _LARGE + b"\xbe" * 1_000)),
    "fields of no value": _requests(_head(_GET + b"\x00\x01x\x00" * 400)),
    "Huffman codes": _requests(_head(_GET + b"\x00\x01x\xff\x81\x3e" + b"\x1c\x64" * 4_032)),
    "table updates": _requests(_head(b"\x20" * 1_000 + _GET)),
    "entries that push out others": _requests(_head(_GET + _LARGE * 4)),
    "requests and resets": _requests(lambda s: _head(_GET)(s) + frames.rst_stream(s, 8)),
    "pings": _behind(b"", frame(frames.PING, 0, 0, bytes(8))),
    "windows": _behind(b"", frames.window_update(0, 1)),
    "settings": _behind(b"", frames.settings({frames.INITIAL_WINDOW_SIZE: 9} | {99: 1})),
    "empty data": _behind(_OPEN, frame(frames.DATA, 0, 1)),
    "data of a byte": _behind(_OPEN, frame(frames.DATA, 0, 1, b"a")),
    "padding": _behind(_OPEN, frame(frames.DATA, frames.PADDED, 1, b"\xff" + b"a" + bytes(255))),
    "fragments": _behind(_PIECES, frame(frames.CONTINUATION, 0, 1)),
}


def _act(connection: Http2Connection, piece: bytes) -> None:
    for event in connection.receive(piece, now=0.0):
        if isinstance(event, DataReceived):
            connection.acknowledge(event.stream, event.flow_bytes)
        if isinstance(event, RequestReceived | DataReceived) and event.end:
            connection.send_headers(event.stream, _STATUS, end=True)
    connection.take_output()


def served(data: bytes) -> None:
    """As the server reads and answers it; a refusal is an answer, too."""
    connection = Http2Connection(now=0.0)
    for at in range(0, len(data), _READ_BYTES):
        _act(connection, data[at : at + _READ_BYTES])


def served_byte_by_byte(data: bytes) -> None:
    connection = Http2Connection(now=0.0)
    for at in range(len(data)):
        _act(connection, data[at : at + 1])
