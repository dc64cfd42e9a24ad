"""What the orchestrator needs to know of a request. The request's protocol stays outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError
from penstock.gateway.http.call import Call
from penstock.wire.http_client import Headers


class Speech(Protocol):
    """The request's protocol, for answers that the orchestrator gives itself."""

    def refuse(self, call: Call, error: PenstockError) -> None:
        """Answers with an error; no part of an answer was sent yet."""

    def broken(self, call: Call, error: PenstockError) -> None:
        """Ends a partly sent answer, with the protocol's own error if it has one."""


class Relay(Protocol):
    """Passes on the parts of a streamed answer."""

    #: the region's own message that it broke the answer off, not passed on; empty: it did not
    broken_off: bytes

    def feed(self, data: bytes) -> bytes:
        """The part of the answer so far that may go to the client: whole events, whole frames."""

    def ending(self) -> bytes | None:
        """What the client still needs if the answer broke after its last content; None: it broke
        before that."""

    def continuation(self) -> bytes | None:
        """The body of a request for the rest after the answer broke; None: it can't be
        continued."""

    def rest(self) -> bytes:
        """The remaining bytes at the end of a complete answer."""


@dataclass(slots=True, kw_only=True)
class OrchestratedRequest:
    """One request."""

    speech: Speech
    endpoint: str = ""  #: the endpoint that it is for; "" = none
    operation: str = ""  #: the kind of request, for metrics and explain
    repeatable: bool = True  #: computing it twice does no harm
    session: str | None = None
    prefix: bytes | None = None  #: the prompt, from its first byte
    deadline_s: float | None = None  #: s that the caller allows; None: it sets no limit
    streams: bool = False  #: its answer may be streamed
    asks_room: bool = False  #: the answer should report how many more requests the region takes
    #: models' errors are 500, so a 500 says nothing about the region
    model_errors_are_500: bool = False
    #: makes the relay once the head of a streamed answer has come; None, or a relay of None: bytes
    #: are passed on as they come
    relay_of: Callable[[Call, Headers], Relay | None] | None = None
