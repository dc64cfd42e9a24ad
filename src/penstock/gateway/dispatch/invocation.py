"""One request on its way through the gateway, and who is told how it ended.

Front doors (HTTP paths, gRPC, admin) make an `Invocation` and hand it to `Dispatcher.invoke`; the
dispatcher admits, routes, forwards, retries, and calls the invocation's `responder` exactly once
with a final outcome (`on_reply`, `on_end` or `on_error`). No task and no future is made per
request: doors that want to await use a responder that resolves a future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.core.blame.poison_requests import FRESH, Past
from penstock.errors import PenstockError
from penstock.wire.frames import Reply

if TYPE_CHECKING:
    from penstock.core.routing import CopyState, Routed
    from penstock.gateway.dispatch.streaming import StreamObserved


class Affinity(NamedTuple):
    """What binds a request to some copies rather than to others."""

    session: str | None = None  #: requests of one session go to one copy while that lives
    prefix: bytes | None = None  #: what the caller says that it shares with others
    opens: bool = False  #: the session begins with this request
    model: str | None = None  #: TargetModel, of a multi-model endpoint
    component: str | None = None  #: InferenceComponentName, of an endpoint that takes components


UNBOUND = Affinity()


def component_of(invocation: Invocation) -> str | None:
    """The inference component that a request names."""
    return invocation.affinity.component if invocation.affinity is not None else None


class Responder(Protocol):
    """The front door's end of a request. Called on the event loop; must not block or raise.

    If it raises, its request fails: `on_error` is called (once more), or `Invocation.abort`.
    One object may serve all requests of a door: `invocation.context` is the door's to fill.
    """

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        """The whole answer. Call `Dispatcher.written` once its last byte has left."""

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        """A piece of a streamed answer; `meta` comes with the first."""

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        """A streamed answer is complete. Call `Dispatcher.written` once its last byte has left."""

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        """No answer, or no more of it. Call `Dispatcher.written` once the error has left."""


#: Where a request stands; each is entered at most once, but for SENT and WAITING, which alternate.
NEW = 0
SENT = 1  #: on an instance
STREAMING = 2  #: the client has seen a part of the answer: no retry any more
WAITING = 3  #: accepted, and held until a copy is there: none was when it came, or it came back
ANSWERED = 4  #: the responder knows the outcome, the last byte is not out
DONE = 5


class Invocation:
    """The common request. Bodies are opaque: only the instance looks inside.

    The second group of fields is the dispatcher's own, valid from `Dispatcher.invoke` on; doors
    read it for headers and logs.
    """

    __slots__ = (
        "affinity", "attempts", "body", "body_bytes", "context", "copy", "copy_failures",
        "deadline", "door", "endpoint", "entry", "error", "ident", "line", "link", "meta",
        "number", "past", "pinned", "priority", "received", "recorder", "reply", "responder",
        "route", "state", "stream", "variant",
    )  # fmt: skip

    attempts: int  #: copies it was sent to so far
    body_bytes: int  #: of the body as it was taken; a door may drop the body once it has answered
    copy: CopyState | None  #: the copy that holds the reserved slot
    copy_failures: tuple[int, ...]  #: copies that gave it back
    entry: Any  #: the endpoint as it was when the request was accepted
    error: PenstockError | None
    ident: int  #: id on the instance connection of the present attempt
    line: Any  #: where it waits, while it does
    link: Any  #: that connection
    past: Past  #: what befell it on its copies so far; a door may know of more
    pinned: bool  #: the caller named the variant
    recorder: Any  #: the metrics of the variant that accepted it; None = refused
    reply: Reply | None
    route: Routed | None  #: the last routing decision: why this copy
    stream: StreamObserved | None  #: of an answer in pieces; a door sets it to get a stream's time

    finished = False  #: whether the door has given all that the client will get
    #: headers that were asked for, by lower-case name; set where a protocol has any
    rare: dict[bytes, bytes] | None = None

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
        context: Any = None,
        number: int = 0,
    ) -> None:
        self.endpoint = endpoint
        self.meta = meta  #: wire form of frames.RequestMeta
        self.body = body
        self.responder = responder
        self.received = received  #: monotonic s, when the request was read
        self.deadline = deadline  #: monotonic s; None = the server's limit
        self.variant = variant  #: TargetVariant, and after routing the variant that was chosen
        self.priority = priority
        self.door = door
        self.context = context  #: the front door's own: what it needs to answer
        self.number = number  #: running number; the request id is made of it. 0 = not yet given
        self.affinity: Affinity | None = None
        self.stream = None
        self.past = FRESH

        self.state = NEW

    def abort(self) -> None:
        """Cuts off the client, where a door can: nothing that is true can be said any more."""
