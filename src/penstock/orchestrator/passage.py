"""One request on its way through the orchestrator, and its answer on the way back.

A small answer is collected until it is complete (`core/traffic/outcomes.py`). Everything else is
passed on as it comes, and the region is not read while the client can't take more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from penstock.core.traffic.outcomes import PIECES, WHOLE
from penstock.errors import PenstockError
from penstock.gateway.http.asgi import head_of
from penstock.gateway.http.call import Call
from penstock.gateway.timers import TimerHandle
from penstock.orchestrator.asked import OrchestratedRequest, Relay
from penstock.orchestrator.pool import REGION_UNREACHABLE
from penstock.orchestrator.requests import ROOM
from penstock.orchestrator.table import EndpointTraffic
from penstock.wire.http_client import HOP_BY_HOP, MALFORMED, UNREACHABLE, Headers
from penstock.wire.http_pool import HttpExchange

log = logging.getLogger(__name__)

#: Size limit of a refusal that is kept while other regions are asked.
REFUSAL_BYTES_MAX: Final = 65_536

REQUEST_ID: Final = b"x-amzn-requestid"
_OPENAI_ID: Final = b"x-request-id"


class Answer:
    """Status, headers, and the body so far."""

    __slots__ = ("body", "headers", "length", "status")

    def __init__(self, status: int, headers: Headers, length: int | None) -> None:
        self.status = status
        self.headers = headers
        self.length = length
        self.body = bytearray()


class AnswerHandler(Protocol):
    """Decides what happens with regions' answers."""

    def began(self, passage: Passage) -> str:
        """The head of an answer has come: whole | pieces | refusal."""

    def over(self, passage: Passage) -> None:
        """An answer is complete."""

    def lost(self, passage: Passage, reason: str) -> None:
        """An answer will not come, or not completely."""


class Passage:
    """A client's request; it is the `AnswerReader` of all its exchanges, one after the other."""

    __slots__ = (
        "answer", "answering", "asked", "attempts", "began_at", "body", "call", "done", "exchange",
        "kept", "mode", "pausing", "region", "region_request_id", "relay", "resumed", "retry_timer",
        "route", "sent_at", "slot", "story", "ticket", "traffic", "tried",
    )  # fmt: skip

    def __init__(
        self,
        answering: AnswerHandler,
        call: Call,
        asked: OrchestratedRequest,
        traffic: EndpointTraffic,
    ) -> None:
        self.answering = answering
        self.call = call
        self.asked = asked
        self.traffic = traffic
        self.body = call.body
        self.exchange: HttpExchange | None = None
        self.slot = ""  #: the region that holds a slot for it; "" = none
        self.region = ""  #: the region that it was sent to last; "" = none
        self.route = ""  #: the reason why that region was chosen
        self.ticket = 0  #: its number in the queue, while it is held here
        self.attempts = 0
        self.tried: tuple[str, ...] = ()  #: regions that failed or refused it
        self.sent_at = 0.0
        self.began_at = 0.0  #: monotonic s of the current answer's first byte; 0 = none yet
        self.answer: Answer | None = None
        self.mode = ""
        self.kept: Answer | None = None  #: a refusal, sent to the client if no other region answers
        self.region_request_id = ""
        self.relay: Relay | None = None  #: the relay of a streamed answer whose protocol is known
        self.resumed = 0  #: number of times that a broken answer was continued in another region
        self.pausing: asyncio.Task[None] | None = None
        self.retry_timer: TimerHandle | None = None
        self.story: list[dict[str, Any]] = []  #: its attempts, for `explain`
        self.done = False

    @property
    def begun(self) -> bool:
        """Whether the client has a part of an answer."""
        return bool(self.call.started or self.call.finished)

    @property
    def may_leave(self) -> bool:
        """Whether another region could answer it instead of the current one."""
        if self.begun:
            return self.relay is not None and self.mode == PIECES
        return self.asked.repeatable

    # AnswerReader

    def on_head(self, status: int, headers: Headers, length: int | None) -> None:
        self.answer = Answer(status, headers, length)
        self.mode = self.answering.began(self)
        if self.mode == PIECES and not self.begun:
            if self.asked.relay_of is not None:
                self.relay = self.asked.relay_of(self.call, headers)
            self._start(length if self.relay is None else None)

    def on_body(self, data: bytes) -> None:
        answer = self.answer
        assert answer is not None
        if self.mode == PIECES:
            relay = self.relay
            piece = data if relay is None else relay.feed(data)
            if piece:
                self.call.send(piece)
                self._ease()
        elif self.mode == WHOLE or len(answer.body) < REFUSAL_BYTES_MAX:
            answer.body += data

    def on_end(self) -> None:
        self.exchange = None
        self.answering.over(self)

    def on_lost(self, reason: str, detail: str) -> None:
        self.exchange = None
        if reason == MALFORMED:
            log.warning("a region's answer can't be read: %s", detail)
        self.answering.lost(self, REGION_UNREACHABLE if reason == UNREACHABLE else reason)

    # Called by the forwarder

    def give_whole(self, answer: Answer) -> None:
        """Sends this answer to the client."""
        self.answer = answer
        try:
            self.call.answer(self.head(), bytes(answer.body))
        except PenstockError as error:  # a header with a line break
            self.asked.speech.refuse(self.call, error)

    def _start(self, length: int | None) -> None:
        try:
            head = self.head()
        except PenstockError as error:
            self.asked.speech.refuse(self.call, error)
            self.call.abort()
        else:
            self.call.start(head, length=length)

    def give_end(self) -> None:
        """Ends the client's answer, after its last part."""
        if self.relay is not None:
            self.call.send(self.relay.rest())
        self.call.finish()

    def give_error(self, error: PenstockError) -> None:
        if self.call.started:
            self.asked.speech.broken(self.call, error)
        elif not self.call.finished:
            self.asked.speech.refuse(self.call, error)

    def head(self) -> bytes:
        """The head of the region's answer, without headers that concern only one connection."""
        answer = self.answer
        assert answer is not None
        headers = [
            (name, value)
            for name, value in answer.headers
            if name not in HOP_BY_HOP and name not in (ROOM, _OPENAI_ID)
        ]
        if any(name == _OPENAI_ID for name, _ in answer.headers) and self.call.connection:
            headers.append((_OPENAI_ID, self.call.request_id.encode()))
        if self.region:
            headers.append((b"x-penstock-region", self.region.encode()))
        return head_of(answer.status, headers)

    def tell(self, outcome: str, now: float) -> None:
        """Records how an attempt ended."""
        self.story.append(
            {
                "region": self.region,
                "reason": self.route,
                "outcome": outcome,
                "ms": round((now - self.sent_at) * 1e3, 3) if self.sent_at else 0.0,
            }
        )

    def stop(self) -> None:
        """Stops reading from every region."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.cancel()
        for waits in (self.retry_timer, self.pausing):
            if waits is not None:
                waits.cancel()
        self.retry_timer = self.pausing = None

    def _ease(self) -> None:
        """Stops reading from the region while the client is behind."""
        connection, exchange = self.call.connection, self.exchange
        if connection is None or exchange is None or self.pausing is not None:
            return
        if connection.unread_bytes or connection.current is not self.call:
            exchange.pause()
            self.pausing = asyncio.get_running_loop().create_task(self._resume(exchange))

    async def _resume(self, exchange: HttpExchange) -> None:
        connection = self.call.connection
        if connection is not None:
            await connection.wait_writable(self.call)
        self.pausing = None
        exchange.resume()
