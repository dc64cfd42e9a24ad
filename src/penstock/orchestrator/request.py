"""What the orchestrator knows of a request and of its answer. The request's protocol stays outside.

It is the `context` of the request's `Call` (an `Invocation`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.core.traffic.outcomes import PIECES
from penstock.gateway.http.call import Call
from penstock.gateway.timers import TimerHandle
from penstock.wire.frames import Reply
from penstock.wire.http_client import Headers


class Relay(ABC):
    """Passes on the parts of a streamed answer."""

    #: the region's own message that it broke the answer off, not passed on; empty: it did not
    broken_off = b""

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """The part of the answer so far that may go to the client: whole events, whole frames."""

    def ending(self) -> bytes | None:
        """What the client still needs if the answer broke after its last content; None: it broke
        before that."""
        return None

    def continuation(self) -> bytes | None:
        """The body of a request for the rest after the answer broke; None: it can't be
        continued."""
        return None

    @abstractmethod
    def rest(self) -> bytes:
        """The remaining bytes at the end of a complete answer."""


@dataclass(slots=True)
class Attempt:
    """A slot that it had in one region. Times are monotonic s."""

    region: str
    reason: str  #: why this region was chosen
    sent_at: float = 0.0  #: 0 = the region had failed before, and was not asked at once again
    began_at: float = 0.0  #: time of the answer's head; 0 = there was none
    over_at: float = 0.0  #: time when it ended; 0 = it is under way
    outcome: str = ""

    @property
    def first_byte_s(self) -> float | None:
        return self.began_at - self.sent_at if self.began_at else None

    def story(self) -> dict[str, Any]:
        """The part of `explain` about this attempt."""
        return {
            "region": self.region,
            "reason": self.reason,
            "outcome": self.outcome,
            "ms": round((self.over_at - self.sent_at) * 1e3, 3) if self.sent_at else 0.0,
        }


class Wait(NamedTuple):
    """A time during which the request was held here. Monotonic s."""

    begun: float
    over: float
    reason: str


@dataclass(slots=True, kw_only=True)
class OrchestratedRequest:
    """One request. The second group of fields is the dispatcher's own."""

    operation: str = ""  #: the kind of request, for metrics and explain
    repeatable: bool = True  #: computing it twice does no harm
    session: str | None = None
    prefix: bytes | None = None  #: the prompt, from its first byte
    asks_room: bool = False  #: the answer should report how many more requests the region takes
    #: models' errors are 500, so a 500 says nothing about the region
    model_errors_are_500: bool = False
    #: makes the relay once the head of a streamed answer has come; None, or a relay of None: bytes
    #: are passed on as they come
    relay_of: Callable[[Call, Headers], Relay | None] | None = None

    ticket: int = 0  #: its number in the queue, while it is held here
    held_at: float = 0.0  #: monotonic s when it began to be held
    held_reason: str = ""
    waits: list[Wait] = field(default_factory=list)
    retry_timer: TimerHandle | None = None  #: runs while no region is asked, as all have failed
    attempts: list[Attempt] = field(default_factory=list)
    tried: tuple[str, ...] = ()  #: regions that failed or refused it
    status: int = 0  #: of the current answer; 0 = none yet
    headers: Headers = field(default_factory=list)  #: of the current answer
    length: int | None = None  #: of the body for the client, if it is known
    mode: str = ""  #: how the current answer is passed on, as in `core/traffic/outcomes.py`
    begun: bool = False  #: the client has a part of an answer
    #: a refusal and its headers, for the client if no other region answers
    kept: tuple[Reply, Headers] | None = None
    relay: Relay | None = None  #: the relay of a streamed answer whose protocol is known
    resumed: int = 0  #: number of times that a broken answer was continued in another region
    region_request_id: str = ""
    cancelled: bool = False  #: the client has gone

    @property
    def may_leave(self) -> bool:
        """Whether another region could answer it instead of the current one."""
        if self.begun:
            return self.relay is not None and self.mode == PIECES
        return self.repeatable

    def hold(self, ticket: int, reason: str, now: float) -> None:
        """It waits for a region with room."""
        self.ticket, self.held_reason, self.held_at = ticket, reason, now

    def let_go(self, now: float) -> None:
        """It is not held any more."""
        self.ticket = 0
        self.waits.append(Wait(self.held_at, now, self.held_reason))
