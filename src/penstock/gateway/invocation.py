"""One request on its way through the gateway, and who is told how it ended.

Front doors (HTTP paths, gRPC, admin) make an `Invocation` and hand it to `Dispatcher.invoke`; the
dispatcher admits, routes, forwards, retries, and calls the invocation's `responder` exactly once
with a final outcome (`on_reply`, `on_end` or `on_error`). No task and no future is made per
request: doors that want to await use a responder that resolves a future.
"""

from __future__ import annotations

from typing import Protocol

from penstock.errors import PenstockError
from penstock.wire.frames import Reply


class Responder(Protocol):
    """The front door's end of a request. Called on the event loop; must not block or raise."""

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        """The whole answer. Call `Dispatcher.written` once its last byte has left."""

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        """A piece of a streamed answer; `meta` comes with the first."""

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        """The streamed answer is complete. Call `Dispatcher.written` once its last byte left."""

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        """No answer, or no more of it. Call `Dispatcher.written` once the error has left."""


class Invocation:
    """The common request. Bodies are opaque: only the instance looks inside.

    The second group of fields is the dispatcher's own; doors read it for headers and logs.
    """

    __slots__ = (
        "attempts", "body", "copy", "copy_failures", "deadline", "door", "endpoint", "ident",
        "meta",
        "number", "priority", "received", "responder", "routed", "state", "variant",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: str,
        meta: bytes,
        body: bytes,
        responder: Responder,
        *,
        received: float,
        deadline: float | None,
        variant: str | None = None,
        priority: int = 0,
        door: str = "runtime",
    ) -> None:
        self.endpoint = endpoint
        self.meta = meta  #: wire form of frames.RequestMeta
        self.body = body
        self.responder = responder
        self.received = received  #: monotonic s, when the head was read
        self.deadline = deadline  #: monotonic s; None = the server's limit
        self.variant = variant  #: TargetVariant, and after routing the variant that was chosen
        self.priority = priority
        self.door = door
        self.number = 0  #: running number; the request id is made of it
        self.ident = 0  #: id on the instance connection of the present attempt
        self.copy: object = None  #: the copy that holds the reserved slot
        self.routed = 0.0
        self.attempts = 0
        self.copy_failures: tuple[int, ...] = ()  #: copies that gave it back
        self.state = 0
