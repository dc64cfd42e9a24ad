"""Bytes of HTTP/2 clients, written out, for the tests of the server's machine."""

from __future__ import annotations

from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import Http2Event
from penstock.wire.http2.frames import END_HEADERS, END_STREAM, PREFACE, frame
from penstock.wire.http2.hpack import Field
from penstock.wire.http2.spec import Http2Spec

START = PREFACE + frame(frames.SETTINGS, 0, 0)
GET: list[Field] = [
    (b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a"),
]  # fmt: skip
#: The fields that grpcio 1.85 sends, which tritonclient is built on.
GRPC: list[Field] = [
    (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
    (b":authority", b"127.0.0.1:8001"),
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
    (b"user-agent", b"grpc-python/1.85.3 grpc-c/58.0.0 (linux; chttp2)"),
]


def literal(fields: list[Field]) -> bytes:
    """A block that leaves the table as it is; names and values below 127 bytes."""
    return b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
    )


def headers(stream: int, fields: list[Field], *, end: bool = True) -> bytes:
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(frames.HEADERS, flags, stream, literal(fields))


def get(stream: int = 1) -> bytes:
    return headers(stream, GET)


def post(stream: int = 1) -> bytes:
    """A request whose body is still to come."""
    return headers(stream, [(b":method", b"POST"), *GET[1:]], end=False)


def data(stream: int, body: bytes, *, end: bool = False) -> bytes:
    return frame(frames.DATA, END_STREAM if end else 0, stream, body)


def started(spec: Http2Spec | None = None, *, now: float = 0.0) -> Http2Connection:
    """A connection whose two prefaces were exchanged, and written."""
    connection = Http2Connection(spec, now=now)
    assert connection.receive(START, now=now) == []
    connection.take_output()
    return connection


def received(connection: Http2Connection, *pieces: bytes) -> list[Http2Event]:
    return connection.receive(b"".join(pieces), now=0.0)


def frames_of(output: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of each frame."""
    found, at = [], 0
    while at < len(output):
        head, flags, stream = frames.HEAD.unpack_from(output, at)
        at += frames.HEAD_BYTES + (head >> 8)
        found.append((head & 0xFF, flags, stream, output[at - (head >> 8) : at]))
    assert at == len(output)
    return found
