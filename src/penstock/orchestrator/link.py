"""The way to one region: a client's request as bytes for it, and the answer on the way back.

The client's credentials are replaced by the region's, and headers of the client's own connection
are left out. The remaining deadline goes with every attempt, so that no region computes an answer
that nobody waits for.

A small answer is collected until it is complete (`core/traffic/outcomes.py`). Everything else is
passed on as it comes, and the region is not read while the client can't take more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from penstock.core.traffic.outcomes import BROKEN_OFF, PIECES, REFUSAL, WHOLE
from penstock.gateway.dispatch.invocation import AnswerEvents, Invocation
from penstock.gateway.http.call import Call
from penstock.orchestrator.regions_file import REGION_UNREACHABLE, RegionAccess
from penstock.orchestrator.request import OrchestratedRequest
from penstock.wire.frames import Reply
from penstock.wire.http_client import HOP_BY_HOP, MALFORMED, UNREACHABLE, Headers
from penstock.wire.http_pool import HttpExchange, HttpPool

log = logging.getLogger(__name__)

ROOM: Final = b"x-penstock-room"  #: asks how many more requests an endpoint takes, and reports it
#: Size limit of a refusal that is kept while other regions are asked.
REFUSAL_BYTES_MAX: Final = 65_536

_LEFT_OUT: Final = HOP_BY_HOP | {
    b"authorization", b"content-length", b"expect", b"host", b"x-amz-content-sha256",
    b"x-amz-date", b"x-amz-security-token", b"x-penstock-deadline-ms", ROOM,
}  # fmt: skip


class RegionEvents(AnswerEvents, Protocol):
    """The receiver of a region's answers: the dispatcher."""

    def on_head(
        self, invocation: Invocation, status: int, headers: Headers, length: int | None
    ) -> str:
        """An answer begins. Returns how it is passed on: whole | pieces | refusal."""

    def on_refused(self, invocation: Invocation, reply: Reply) -> None:
        """The region can't take the request, or does not accept our key."""


class RegionLink:
    """A `Link` over a pool of connections to a region."""

    def __init__(self, access: RegionAccess, pool: HttpPool, events: RegionEvents) -> None:
        self.events = events
        self._access = access
        self._pool = pool
        self._answers: dict[int, _Answer] = {}  #: by the request's number

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        call = cast(Call, invocation)
        asked: OrchestratedRequest = call.context
        data = _written(call, self._access, deadline_ms, asks_room=asked.asks_room)
        answer = self._answers[call.number] = _Answer(self, call)
        answer.exchange = self._pool.ask(
            answer, data, head_only=call.method == b"HEAD", repeatable=asked.repeatable
        )

    def cancel(self, invocation: Invocation) -> None:
        answer = self._answers.pop(invocation.number, None)
        if answer is not None:
            answer.stop()

    def pace(self, invocation: Invocation, *, waits: bool) -> None:
        """Each answer looks itself how much its client has not read (`_Answer._ease`)."""

    def ended(self, call: Call) -> None:
        """The answer is complete or lost."""
        del self._answers[call.number]


class _Answer:
    """The `AnswerReader` of one attempt."""

    def __init__(self, link: RegionLink, call: Call) -> None:
        self._link = link
        self._events = link.events
        self._call = call
        self._asked: OrchestratedRequest = call.context
        self._status = 0
        self._mode = ""
        self._body = bytearray()
        self._easing: asyncio.Task[None] | None = None
        self.exchange: HttpExchange | None = None

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self._status = status
        self._mode = self._events.on_head(self._call, status, headers, length)
        if self._mode == PIECES:
            self._events.on_chunk(self._call, b"", None)

    def on_body(self, data: bytes) -> None:
        if self._mode == PIECES:
            relay = self._asked.relay
            piece = data if relay is None else relay.feed(data)
            if piece:
                self._events.on_chunk(self._call, piece, None)
                self._ease()
        elif self._mode == WHOLE or len(self._body) < REFUSAL_BYTES_MAX:
            self._body += data

    def on_end(self) -> None:
        self._over()
        reply = Reply(self._status, 0, 0, 0, 0, 0, 0, b"", bytes(self._body))
        relay = self._asked.relay
        if self._mode == REFUSAL:
            self._events.on_refused(self._call, reply)
        elif relay is not None and relay.broken_off:
            self._events.on_returned(self._call, BROKEN_OFF)
        elif self._mode == WHOLE:
            self._events.on_reply(self._call, reply)
        else:
            self._events.on_end(self._call, reply)

    def on_lost(self, reason: str, detail: str) -> None:
        self._over()
        if reason == MALFORMED:
            log.warning("a region's answer can't be read: %s", detail)
        lost = REGION_UNREACHABLE if reason == UNREACHABLE else reason
        self._events.on_returned(self._call, lost)

    def _over(self) -> None:
        self.exchange = None
        self._link.ended(self._call)
        self.stop()

    def stop(self) -> None:
        """Stops reading from the region."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.cancel()
        if self._easing is not None:
            self._easing.cancel()
            self._easing = None

    def _ease(self) -> None:
        """Stops reading from the region while the client is behind."""
        connection, exchange = self._call.connection, self.exchange
        if connection is None or exchange is None or self._easing is not None:
            return
        if connection.unread_bytes or connection.current is not self._call:
            exchange.pause()
            self._easing = asyncio.get_running_loop().create_task(self._go_on(exchange))

    async def _go_on(self, exchange: HttpExchange) -> None:
        connection = self._call.connection
        if connection is not None:
            await connection.wait_writable(self._call)
        self._easing = None
        exchange.resume()


def _written(call: Call, access: RegionAccess, deadline_ms: int, *, asks_room: bool) -> bytes:
    """The whole request."""
    lines = [
        b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (call.method, call.url, access.address.authority),
        access.credential.line,
    ]
    left_out = _LEFT_OUT | _connection_options(call)
    for name, value in call.headers:
        if name.lower() not in left_out:
            lines.append(b"%b: %b\r\n" % (name, value))
    if asks_room:
        lines.append(b"%b: ?1\r\n" % ROOM)
    lines.append(b"x-penstock-deadline-ms: %d\r\n" % deadline_ms)
    if call.body or call.method not in (b"GET", b"HEAD"):
        lines.append(b"content-length: %d\r\n" % len(call.body))
    lines.append(b"\r\n")
    lines.append(call.body)
    return b"".join(lines)


def _connection_options(call: Call) -> set[bytes]:
    """The headers that the client marked as for this connection only."""
    return {
        option.strip().lower()
        for name, value in call.headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
