"""A gRPC client made of bare HTTP/2 frames, which may leave undone what libraries finish.

It keeps to flow control, so what it could send is what the server was ready to take.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable

import hpack

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE, STREAMS_MAX = 4, 3
FRAME_BYTES = 16_384


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header without compression and without a table (RFC 7541, 6.2.2)."""
    assert max(len(name), len(value)) < 127
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


class BareClient:
    """One connection; `open` it, then `call` and `send`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._initial = 65_535
        self._windows: dict[int, int] = {0: 65_535}
        self.streams_max: int | None = None
        self.ended: set[int] = set()  #: calls that the server is done with
        self.statuses: dict[int, str | None] = {}  #: of calls, once their last head has come
        self._head = hpack.Decoder()
        self.bytes_sent: dict[int, int] = {}
        self._answers = asyncio.get_running_loop().create_task(self._read())
        self._settled = asyncio.Event()

    @classmethod
    async def open(cls, port: int) -> BareClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, b""))
        client = cls(reader, writer)
        await asyncio.wait_for(client._settled.wait(), 60)
        return client

    async def close(self) -> None:
        self._answers.cancel()
        self._writer.close()

    def call(self, method: str, metadata: Iterable[tuple[bytes, bytes]] = ()) -> int:
        """Sends the head of a call; returns its number."""
        stream = 1 + 2 * len(self.bytes_sent)
        self._windows[stream] = self._initial
        self.bytes_sent[stream] = 0
        head = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/inference.GRPCInferenceService/{method}".encode()),
            (b":authority", b"here"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *metadata,
        )
        block = b"".join(_literal(name, value) for name, value in head)
        self._writer.write(_frame(HEADERS, END_HEADERS, stream, block))
        return stream

    def send(self, stream: int, message_bytes: int) -> bool:
        """Sends what the server takes now of a message, but never its last byte.

        False if that is nothing.
        """
        sent = self.bytes_sent[stream]
        prefix = b"\x00" + struct.pack(">I", message_bytes) if not sent else b""
        room = min(self._windows[stream], self._windows[0], FRAME_BYTES) - len(prefix)
        size = min(room, len(prefix) + message_bytes - 1 - sent)
        if stream in self.ended or size <= 0:
            return False
        payload = prefix + b"x" * size
        self._writer.write(_frame(DATA, 0, stream, payload))
        self._windows[stream] -= len(payload)
        self._windows[0] -= len(payload)
        self.bytes_sent[stream] += len(payload)
        return True

    def send_whole(self, stream: int, message: bytes, *, compressed: bool = False) -> None:
        """Sends a message that fits into the windows, before any that `send` leaves unfinished."""
        payload = bytes((compressed,)) + struct.pack(">I", len(message)) + message
        for begin in range(0, len(payload), FRAME_BYTES):
            piece = payload[begin : begin + FRAME_BYTES]
            self._writer.write(_frame(DATA, 0, stream, piece))
        self._windows[stream] -= len(payload)
        self._windows[0] -= len(payload)
        assert self._windows[stream] >= 0 <= self._windows[0]

    def end(self, stream: int, data: bytes = b"") -> None:
        """Sends no more than `data`."""
        self._writer.write(_frame(DATA, END_STREAM, stream, data))

    async def _read(self) -> None:
        while True:
            head = await self._reader.readexactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                for at in range(0, len(payload), 6):
                    self._setting(*struct.unpack(">HI", payload[at : at + 6]))
                self._writer.write(_frame(SETTINGS, ACK, 0, b""))
                self._settled.set()
            elif kind == WINDOW:
                before = self._windows.get(stream, self._initial)
                self._windows[stream] = before + int.from_bytes(payload, "big")
            elif kind == PING and not flags & ACK:
                self._writer.write(_frame(PING, ACK, 0, payload))
            elif kind == HEADERS:
                self.statuses[stream] = dict(self._head.decode(payload)).get("grpc-status")
                if flags & END_STREAM:
                    self.ended.add(stream)
            elif kind == RESET:
                self.ended.add(stream)

    def _setting(self, name: int, value: int) -> None:
        if name == INITIAL_WINDOW_SIZE:
            for stream in self._windows:
                if stream:
                    self._windows[stream] += value - self._initial
            self._initial = value
        elif name == STREAMS_MAX:
            self.streams_max = value
