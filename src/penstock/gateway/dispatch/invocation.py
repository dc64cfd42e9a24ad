"""One request on its way through the gateway, and the interface that gets its outcome.

Front doors (HTTP paths, gRPC, admin) make an `Invocation` and pass it to `Dispatcher.invoke`. The
dispatcher admits, routes, forwards and retries it, and calls the invocation's `responder` exactly
once with a final outcome (`on_reply`, `on_end` or `on_error`). No task and no future is made per
request: doors that want to await use a responder that resolves a future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.core.blame.poison_requests import FRESH, Past
from penstock.errors import PenstockError
from penstock.wire.frames import Reply

if TYPE_CHECKING:
    from penstock.core.deployment.deployment import TargetRoutes
    from penstock.core.routing import CopyState, Routed
    from penstock.gateway.dispatch.streaming import StreamObserved


class Affinity(NamedTuple):
    """What ties a request to some copies."""

    session: str | None = None  #: requests of one session go to one copy, while that exists
    #: the part of the prompt that the caller says is shared with other requests
    prefix: bytes | None = None
    opens: bool = False  #: this request starts the session
    model: str | None = None  #: TargetModel, for a multi-model endpoint
    component: str | None = None  #: InferenceComponentName, for an endpoint with components
    ends: bool = False  #: this request is the last of its sequence


UNBOUND = Affinity()


class Aimed(NamedTuple):
    """Which artifact a request for a target model goes to."""

    routes: TargetRoutes
    incoming: bool

    @property
    def artifact(self) -> str:
        return self.routes.incoming if self.incoming else self.routes.serves

    @property
    def other(self) -> Aimed:
        """At the other artifact of the rollout."""
        return self._replace(incoming=not self.incoming)


def component_of(invocation: Invocation) -> str | None:
    """The inference component that a request names."""
    return invocation.affinity.component if invocation.affinity is not None else None


def session_of(invocation: Invocation) -> str | None:
    """The session or the sequence that a request belongs to."""
    return invocation.affinity.session if invocation.affinity is not None else None


class Responder(Protocol):
    """The front door's end of a request. Called on the event loop; must not block or raise.

    If it raises, its request fails: `on_error` is called (once more), or `Invocation.abort`. One
    object may serve all requests of a door: `invocation.context` is the door's to use.
    """

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        """The whole answer. Call `Dispatcher.written` once its last byte has left."""

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        """A part of a streamed answer; `meta` comes with the first part."""

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        """A streamed answer is complete. Call `Dispatcher.written` once its last byte has left."""

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        """No answer, or no more of it. Call `Dispatcher.written` once the error was sent."""


class AnswerEvents(Protocol):
    """The receiver of what links report of requests: a dispatcher."""

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        """The whole answer."""

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        """A part of an answer; `meta` comes with the first part."""

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        """An answer in parts is complete."""

    def on_returned(self, invocation: Invocation, reason: str) -> None:
        """There will be no answer from this target, or no more of it."""


class Link(Protocol):
    """The way to one instance or region. Reports to its `AnswerEvents`."""

    def send(self, invocation: Invocation, copy: int, deadline_ms: int) -> None:
        """Sends a request; `copy`: to this one of an instance's."""

    def cancel(self, invocation: Invocation) -> None:
        """The answer is no longer wanted and will not be reported."""

    def pace(self, invocation: Invocation, *, waits: bool) -> None:
        """The client reads slowly: more of the answer is to wait, or need not any more."""


#: States of a request. Each is entered at most once, except SENT and WAITING, which alternate.
NEW = 0
SENT = 1  #: sent to an instance
STREAMING = 2  #: the client has a part of the answer: no more retries
WAITING = 3  #: accepted, and held until a copy can take it: none could, or a copy gave it back
ANSWERED = 4  #: the responder has the outcome; the last byte has not left
DONE = 5


class Invocation:
    """The common request. Bodies are opaque: only the instance looks inside.

    The second group of fields is the dispatcher's own, valid from `Dispatcher.invoke` on; doors
    read it for headers and logs.
    """

    __slots__ = (
        "affinity", "aimed", "attempts", "body", "body_bytes", "context", "copy", "copy_failures",
        "deadline", "door", "endpoint", "entry", "error", "ident", "line", "link", "meta",
        "number", "past", "pinned", "priority", "received", "recorder", "reply", "responder",
        "route", "state", "stream", "variant",
    )  # fmt: skip

    attempts: int  #: number of copies that it was sent to
    #: size of the body as it was received; a door may drop the body after the answer
    body_bytes: int
    copy: CopyState | None  #: the copy with the slot that it holds
    copy_failures: tuple[int, ...]  #: copies that gave it back
    entry: Any  #: the `Endpoint` object when the request was accepted
    error: PenstockError | None
    ident: int  #: its id on the connection of the current attempt
    line: Any  #: the `Line` in which it waits; None: it does not wait
    link: Any  #: the connection of the current attempt
    past: Past  #: its failures on copies so far; a door may add earlier ones
    pinned: bool  #: the caller named the variant
    recorder: Any  #: the recorder of the variant that accepted it; None = refused
    reply: Reply | None
    route: Routed | None  #: the last routing decision: why this copy
    #: state of a streamed answer; a door sets it to get the time limit of streams
    stream: StreamObserved | None

    finished = False  #: whether the client will get no more of the answer
    #: values of the headers that doors ask for, by lower-case name; None: the protocol has none
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
        self.context = context  #: the front door's own data for its answer
        self.number = number  #: running number; the request id is made of it. 0 = not yet given
        self.affinity: Affinity | None = None
        #: the artifact that it goes to, where that is not simply the one of its target model's name
        self.aimed: Aimed | None = None
        self.stream = None
        self.past = FRESH

        self.state = NEW

    def pace(self, *, waits: bool) -> None:
        """For doors: the client does not keep up with its streamed answer, or does again."""
        if self.state == STREAMING:
            if self.stream is not None:
                self.stream.paced = True
            self.link.pace(self, waits=waits)

    def abort(self) -> None:
        """Disconnects the client, if the door can: no correct answer is possible any more."""
