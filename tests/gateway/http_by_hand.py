"""One HTTP connection without a socket: the test plays the client and the clock.

Everything of the gateway is the real code. Only the transport is replaced: what is written is a
list, and the client takes of it what the test says.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.http_site import ScriptedDoor
from tests.kit.gateway import PREFIX

from penstock.clock import ManualClock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.host_gate import HostGate
from penstock.gateway.http.call import Call, Door
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http_server.listener import HttpServerListener
from penstock.gateway.request_id import RequestIds


class HttpWire(asyncio.Transport):
    """The connection's end of a socket. `taking` False: the client reads nothing by itself."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__()
        self.tls = tls
        self.peername: tuple[Any, ...] | None = ("192.0.2.1", 1, 0, 0)
        self.taking = True
        self.writes: list[bytes] = []
        self.unread_bytes = 0
        self.reading = True
        self.told: list[str] = []  #: what the connection asked of it, writes left out
        self.closing = False
        self.connection: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.connection = protocol

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        if not self.taking:
            before, self.unread_bytes = self.unread_bytes, self.unread_bytes + len(data)
            if not before and self.unread_bytes and self.connection is not None:
                self.connection.pause_writing()

    def take(self, size: int) -> None:
        """The client reads `size` of what waits."""
        assert 0 < size <= self.unread_bytes
        self.unread_bytes -= size
        if not self.unread_bytes and self.connection is not None:
            self.connection.resume_writing()

    def take_all(self) -> None:
        """And whatever comes from now on."""
        self.taking = True
        self.take(self.unread_bytes)

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {
            "peername": self.peername,
            "sockname": ("192.0.2.2", 80, 0, 0),
            "sslcontext": object() if self.tls else None,
        }
        return known.get(name, default)

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.told.append(f"high={high}")

    def can_write_eof(self) -> bool:
        return not self.tls

    def write_eof(self) -> None:
        self.told.append("eof")

    def pause_reading(self) -> None:
        assert self.reading, "it does not read"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "it reads"
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def abort(self) -> None:
        self.told.append("abort")
        self.closing = True


class ByHand:
    """A listener under a manual clock, and one connection to it."""

    def __init__(
        self,
        *,
        tls: bool = False,
        bodies: BodyBudget | None = None,
        authenticator: Any = None,
        fallback: Door | None = None,
        interest: tuple[bytes, ...] = (),
        **limits: Any,
    ) -> None:
        self.clock = ManualClock(monotonic_s=1000.0)
        self.door = ScriptedDoor()
        self.fallback = ScriptedDoor()
        self.listener = HttpServerListener(
            limits=LimitConfig(**limits),
            clock=self.clock,
            ids=RequestIds(PREFIX),
            doors=[(b"/hot/", self.door)],
            fallback=fallback or self.fallback,
            gate=HostGate(hosts=("x",)),
            bodies=bodies,
            authenticator=authenticator,
            interest=interest,
        )
        self.wire, self.connection = self.another(tls=tls)
        self.wire.told.clear()

    def another(self, *, tls: bool = False) -> tuple[HttpWire, HttpConnection]:
        wire, connection = HttpWire(tls=tls), HttpConnection(self.listener)
        wire.connection = connection
        connection.connection_made(wire)
        return wire, connection

    def read(self, *reads: bytes) -> None:
        for data in reads:
            self.connection.data_received(data)

    def ask(self, request: bytes) -> Call:
        """A request whose answer the test gives."""
        self.read(request)
        return self.door.waiting[-1]

    def later(self, seconds: float) -> None:
        """Time passes, and the listener's timer looks at the connection."""
        self.clock.advance(seconds)
        self.listener.now = now = self.clock.monotonic()
        self.connection.check(now)

    def lose(self) -> None:
        self.connection.connection_lost(None)

    @property
    def statuses(self) -> list[int]:
        """Of the answers so far, in their order."""
        found = [part.split(b" ", 1)[0] for part in self.wire.sent.split(b"HTTP/1.1 ")[1:]]
        return [int(status) for status in found]
