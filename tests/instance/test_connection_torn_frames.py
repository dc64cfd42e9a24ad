"""The instance's end of a connection: what is torn ends it, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.kit.virtual_network import VirtualLoop, run_virtual

from penstock.instance.connection import Connection
from penstock.wire import frames
from penstock.wire.frames import LOOK_S, LOOKS_MAX


class HeldCopy:
    """Takes requests and never answers; `fails` makes taking one a bug."""

    def __init__(self) -> None:
        self.accepted: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.fails = False
        self.turns = 0
        self.driver = self

    def accept(self, request: Any, now: float) -> None:
        if self.fails:
            raise ZeroDivisionError("a bug")
        self.accepted.append(request.body)

    def cancel(self, request: Any) -> None:
        request.answered = True
        request.sink.forget(request.ident)
        self.cancelled.append(request.body)

    def turn(self, now: float) -> None:
        self.turns += 1


class FakeHost:
    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = loop
        self.copy = HeldCopy()
        self.copies: Any = {1: self.copy}
        self.gone = 0
        self.counts = None

        self.greeting = b""

    def admits(self, peer: socket.socket) -> bool:
        return True

    def trusts(self, certificate: dict[str, Any]) -> bool:
        return True

    def control(self, connection: Connection, ident: int, payload: bytes) -> None: ...

    def connected(self, connection: Connection) -> None: ...

    def disconnected(self, connection: Connection) -> None:
        self.gone += 1


class TornWire:
    """A connection of `host` over a real pair of sockets; bytes are handed to it directly."""

    def __init__(self, host: FakeHost) -> None:
        self.near, self.far = socket.socketpair()
        self.connection = Connection(host)
        self.connection.connection_made(self)  # type: ignore[arg-type]  # the part that it uses
        self.feed = self.connection.data_received

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.near if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def sent(self) -> list[frames.Frame]:
        self.far.setblocking(False)
        try:
            data = self.far.recv(1 << 20)
        except BlockingIOError:
            return []
        return list(frames.FrameDecoder(frames.FROM_INSTANCE).feed(data))

    def close(self) -> None:
        self.near.close()
        self.far.close()


def with_wire(test: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        host = FakeHost(loop)
        wire = TornWire(host)
        try:
            await test(host, wire)
        finally:
            wire.close()

    run_virtual(main)


def test_a_frame_that_does_not_come_to_its_end_ends_the_connection_and_its_requests() -> None:
    async def test(host: FakeHost, wire: TornWire) -> None:
        wire.feed(frames.encode_invoke(1, 1, 0, 0, b"", b"whole"))
        wire.feed(frames.encode_invoke(2, 1, 0, 0, b"", b"torn")[:-1])
        await asyncio.sleep(LOOKS_MAX * LOOK_S / 2)
        assert host.gone == 0
        await asyncio.sleep((LOOKS_MAX / 2 + 2) * LOOK_S)
        assert (host.gone, host.copy.accepted, host.copy.cancelled) == (1, [b"whole"], [b"whole"])

    with_wire(test)


@pytest.mark.parametrize(
    "torn",
    [
        b"\xff" * 32,
        frames.encode(frames.CANCEL, 1, b"x"),
        frames.encode_reply(1),
        frames.encode(frames.INVOKE, 2, b"x"),
        frames.HEAD.pack(1 << 31, frames.INVOKE, 0, 0, 2),
        frames.HEAD.pack(1 << 27, frames.CONTROL, 0, 0, 2),
        frames.encode_invoke(1, 1, 0, 0, b"", b"again"),
    ],
)
def test_what_can_not_be_a_frame_ends_the_connection_at_once(torn: bytes) -> None:
    async def test(host: FakeHost, wire: TornWire) -> None:
        wire.feed(frames.encode_invoke(1, 1, 0, 0, b"", b"whole"))
        wire.feed(torn)
        await asyncio.sleep(0.001)
        assert (host.gone, host.copy.cancelled) == (1, [b"whole"])

    with_wire(test)


def test_a_request_that_meets_a_bug_is_answered_with_an_error_and_the_others_go_on() -> None:
    async def test(host: FakeHost, wire: TornWire) -> None:
        wire.feed(frames.encode_invoke(1, 1, 0, 0, b"", b"fine"))
        host.copy.fails = True
        wire.feed(frames.encode_invoke(2, 1, 0, 0, b"", b"unlucky"))
        host.copy.fails = False
        wire.feed(frames.encode_invoke(3, 1, 0, 0, b"", b"fine too"))
        await asyncio.sleep(0.001)
        [error] = wire.sent()
        assert (error.kind, error.ident) == (frames.ERROR, 2)
        assert (host.gone, host.copy.accepted) == (0, [b"fine", b"fine too"])

    with_wire(test)


def test_an_answer_that_the_gateway_would_take_for_torn_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.instance.connection._FRAME_BYTES_MAX", 1000)

    async def test(host: FakeHost, wire: TornWire) -> None:
        wire.connection.send(frames.encode_reply(7, body=bytes(2000)))
        await asyncio.sleep(0.001)
        [error] = wire.sent()
        assert (error.kind, error.ident) == (frames.ERROR, 7)
        assert b"answer-too-large" in error.payload

    with_wire(test)
