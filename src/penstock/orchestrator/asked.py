"""What the way to a region needs to know of a request; which protocol it speaks stays outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError
from penstock.gateway.http.call import Call
from penstock.wire.http_client import Headers


class Speech(Protocol):
    """The protocol of a request, for what the orchestrator has to say itself."""

    def refuse(self, call: Call, error: PenstockError) -> None:
        """Answers with an error; nothing of an answer has left."""

    def broken(self, call: Call, error: PenstockError) -> None:
        """Ends an answer of which a part has left: by the protocol's own error, if it has one."""


class Relay(Protocol):
    """What passes on the pieces of an answer that is made piece by piece."""

    #: what the region said when it broke the answer off itself, kept back; empty: it did not
    broken_off: bytes

    def feed(self, data: bytes) -> bytes:
        """What of the answer so far may go to the client: whole events, whole frames."""

    def ending(self) -> bytes | None:
        """What is still to be sent of an answer that broke behind its last word; None: it broke
        before that."""

    def continuation(self) -> bytes | None:
        """The body of a request for the rest, once the answer broke; None: there is no such."""

    def rest(self) -> bytes:
        """What is left at the end of a sound answer."""


@dataclass(slots=True, kw_only=True)
class OrchestratedRequest:
    """One request."""

    speech: Speech
    endpoint: str = ""  #: that it is for; "" = for none
    operation: str = ""  #: what is asked, for metrics and explain
    repeatable: bool = True  #: it may be computed twice
    session: str | None = None
    prefix: bytes | None = None  #: the prompt from its first byte
    deadline_s: float | None = None  #: that the caller allows
    streams: bool = False  #: its answer may be made piece by piece
    asks_room: bool = False  #: the answer may tell what else could come
    model_errors_are_500: bool = False  #: so that a 500 says nothing of the region
    #: made once the head of an answer in pieces is here; None, or of None: bytes as they come
    relay_of: Callable[[Call, Headers], Relay | None] | None = None
