"""One HTTP/2 connection to an HTTP port without a socket: the test plays the client and the clock.

As `http_by_hand.py`, which has the gateway's end; the client's end is made of h2.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.http_by_hand import ByHand
from tests.kit.http2_clients import Http2Answer, Http2Speaker

from penstock.gateway.http.call import Call
from penstock.gateway.http2.http_connection import HttpOverHttp2


class Http2ByHand(Http2Speaker):
    """A client whose bytes arrive at once, and that reads whenever it is asked for what came."""

    def __init__(
        self, *, opens_windows: bool = True, window_bytes: int | None = None, **site: Any
    ) -> None:
        super().__init__(opens_windows=opens_windows, window_bytes=window_bytes)
        self.site = ByHand(**site)
        self.wire = self.site.wire
        self.door = self.site.door
        self._read = 0
        self.flush()
        assert isinstance(self.connection, HttpOverHttp2)
        self.read()

    @property
    def connection(self) -> Any:
        return self.wire.connection

    @property
    def bodies_bytes(self) -> int:
        """Taken of the budget."""
        return self.site.listener.bodies.bytes_taken

    def write(self, data: bytes) -> None:
        self.wire.connection.data_received(data)

    def read(self) -> None:
        """Takes what the gateway has written."""
        while self._read < len(self.wire.writes):
            self._read += 1
            self.take(self.wire.writes[self._read - 1])

    async def turn(self) -> None:
        """What was made in this turn of the event loop, and at its end, leaves."""
        for _ in range(2):
            await asyncio.sleep(0)
        self.read()

    async def answered(self, stream: int) -> Http2Answer:
        await self.turn()
        return self.answers[stream]

    async def ask(
        self, method: str, path: str, body: bytes = b"", *headers: tuple[str, str]
    ) -> Http2Answer:
        stream = self.begin(method, path, *headers, end=not body, authority="x")
        if body:
            self.send(stream, body, end=True)
        return await self.answered(stream)

    def later(self, path: str = "/hot/later") -> Call:
        """A request whose answer the test gives."""
        self.begin("GET", path, authority="x")
        return self.door.waiting[-1]

    async def pass_s(self, seconds: float) -> None:
        """Time passes, and the listener's timer looks at the connection."""
        self.site.clock.advance(seconds)
        self.site.listener.now = now = self.site.clock.monotonic()
        self.connection.check(now)
        await self.turn()

    def lose(self) -> None:
        self.connection.connection_lost(None)
