"""SageMaker's runtime: POST /endpoints/{name}/invocations, the hottest path of all.

It translates InvokeEndpoint and InvokeEndpointWithResponseStream into `Invocation`s, and their
outcomes back; it holds no policy. Values that repeat (paths, metas, heads of answers) are kept in
bounded dictionaries under the received bytes, so that a usual request costs a few look-ups and no
parsing. Paths of the OpenAI route below `/endpoints/` go to that door.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from penstock.api.answering import CallResponder, header_value, kept
from penstock.api.runtime import request
from penstock.api.runtime.asynchronous import AsyncDoor
from penstock.api.runtime.errors import RuntimeErrors
from penstock.api.runtime.request import FindSession, SessionHeaders
from penstock.api.runtime.stream import EventStreamResponder, about
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.refusals import target_container_not_allowed
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.call import Call, Door, status_line
from penstock.wire.frames import Reply, decode_reply_meta

PREFIX = b"/endpoints/"
INTEREST = request.INTEREST

_PLAIN = b"invocations"
_STREAM = b"invocations-response-stream"
_ASYNC = b"async-invocations"


class RuntimeDoor(CallResponder):
    """The `Door` of the runtime, and the `Responder` of its invocations."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        account_id: str,
        region: str,
        openai: Door,
        asynchronous: AsyncDoor | None = None,
        hands_on: bool = False,
        find_session: FindSession | None = None,
        room: Callable[[str], int] | None = None,
    ) -> None:
        """
        Args:
            openai: serves the paths of the OpenAI route below `/endpoints/`.
            asynchronous: serves InvokeEndpointAsync.
            hands_on: whether paths without a door, InvokeEndpointAsync's too, are handed on.
            find_session: asks other gateways for a session that is unknown here.
            room: the number of further requests that an endpoint takes now, for callers that ask.
        """
        super().__init__(dispatcher)
        self._invoke = dispatcher.invoke
        self._takes_containers = dispatcher.takes_containers
        self._metas = request.PLAIN_METAS
        self._errors = RuntimeErrors(account_id, region)
        self._names: dict[bytes, str] = {}  #: request target -> endpoint
        self._heads: dict[tuple[str | None, bytes], bytes] = {}  #: variant, reply meta -> head
        self._openai = openai
        self._asynchronous = asynchronous
        self._room = room
        takes_async = asynchronous is not None or hands_on
        self._operations = (_PLAIN, _STREAM, _ASYNC) if takes_async else (_PLAIN, _STREAM)
        self._sessions = SessionHeaders(dispatcher, find_session)
        self._stream = EventStreamResponder(self._errors, self._sessions.head)

    # Door

    def handle(self, call: Call) -> bool:
        name = self._names.get(call.url)
        if name is None or call.method != b"POST":
            try:
                name, operation = self._learn(call)
            except CallerError as error:
                self.refuse(call, error)
                return True
            if operation != _PLAIN:
                return self._handle_rarer(call, name, operation)
        if call.rare is None:
            meta = self._metas.get((call.content_type, call.accept, None))
            if meta is None:
                try:
                    meta = request.plain_meta(call.content_type, call.accept)
                except CallerError as error:
                    self._answer_error(call, error, name)
                    return True
            call.meta = meta
        elif not self._read(call, name, call.accept, streams=False):
            return True
        call.endpoint = name
        call.responder = self
        self._invoke(call)
        return True

    def _handle_rarer(self, call: Call, name: str, operation: bytes) -> bool:
        if operation == _ASYNC:
            if self._asynchronous is None:
                return False
            self._asynchronous.handle(call, name)
            return True
        if operation != _STREAM:
            call.front_door = self._openai
            return self._openai.handle(call)
        accept = call.rare.get(request.STREAM_ACCEPT) if call.rare is not None else None
        if self._read(call, name, accept, streams=True):
            call.endpoint = name
            call.responder = self._stream
            call.stream = StreamObserved()
            self._invoke(call)
        return True

    def _read(self, call: Call, name: str, accept: bytes | None, *, streams: bool) -> bool:
        """Reads the rare headers; False if the call is already answered."""
        try:
            asked = request.read(call.content_type, accept, call.rare or {}, streams=streams)
            call.endpoint = name
            if call.rare and request.TARGET_CONTAINER in call.rare:
                self._check_container(name, asked.variant)
            call.affinity = asked.affinity
            if asked.affinity is not None:
                if self._sessions.is_elsewhere(call):
                    self._sessions.look_up(call, self._found)
                    return False
                if self._sessions.answer(call):
                    return False
        except PenstockError as error:
            self._answer_error(call, error, name)
            return False
        call.meta, call.variant = asked.meta, asked.variant
        if asked.deadline_s is not None:
            call.deadline = call.received + asked.deadline_s
        return True

    def _check_container(self, name: str, variant: str | None) -> None:
        """Raises CallerError where no request names a container; the copy knows which there are."""
        if not self._takes_containers(name, variant):
            raise target_container_not_allowed(name)

    def _found(self, call: Call, refusal: PenstockError | None) -> None:
        """Continues a request after other gateways were asked for its session."""
        if refusal is not None:
            self._answer_error(call, refusal, call.endpoint)
        else:
            self.handle(call)  # an operation of this door, which was parsed before

    def refuse(self, call: Call, error: PenstockError) -> None:
        name, operation = endpoint_of(call.path)
        if _is_openai(operation):
            call.front_door = self._openai
            self._openai.refuse(call, error)
        else:
            self._answer_error(call, error, name)

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        head = self._heads.get((invocation.variant, reply.meta))
        if head is None:
            head = self._learn_head(invocation.variant, reply.meta)
        call: Call = invocation  # type: ignore[assignment]  # `handle` passes nothing else
        if call.rare is not None:
            head += self._said_besides(call)
        call.answer(head, reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        call = invocation
        if not call.started:
            head = self._learn_head(invocation.variant, meta or b"")
            if call.affinity is not None:
                head += self._sessions.head(call)
            call.start(head)
        call.send(chunk)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        call = invocation
        if call.started:
            # Part of the answer has left under status 200: only a cut connection shows the failure.
            call.abort()
        else:
            self._answer_error(call, error, invocation.endpoint)

    def _said_besides(self, call: Call) -> bytes:
        """Further header lines: the session of a request, and others that are rare."""
        head = self._sessions.head(call) if call.affinity is not None else b""
        if self._room is not None and call.rare is not None and request.ROOM in call.rare:
            head += b"%b: %d\r\n" % (request.ROOM, self._room(call.endpoint))
        return head

    # Caches of repeated values

    def _answer_error(self, call: Call, error: PenstockError, endpoint: str) -> None:
        call.answer(*self._errors.render(error, endpoint))

    def _learn(self, call: Call) -> tuple[str, bytes]:
        """Endpoint and operation of a path. Raises CallerError for one that is not served."""
        name, operation = endpoint_of(call.path)
        if _is_openai(operation):
            return name, operation
        if operation not in self._operations or call.method != b"POST":
            asked = f"{call.method.decode('latin-1')} {call.path[:128].decode('latin-1')}"
            raise CallerError(
                "unknown-operation",
                f"{asked} is no operation that is served here.",
                hint="POST /endpoints/{name}/invocations invokes an endpoint.",
                status=404,
            )
        if operation == _PLAIN:
            kept(self._names, call.url, name, call.url)
        return name, operation

    def _learn_head(self, variant: str | None, reply_meta: bytes) -> bytes:
        meta = decode_reply_meta(reply_meta)
        head = status_line(200)
        if meta.content_type is not None:
            head += b"content-type: %b\r\n" % header_value(meta.content_type)
        head += about(variant, meta)
        if meta.generation is None:  # else the meta is unique to this request
            kept(self._heads, (variant, reply_meta), head, reply_meta)
        return head


def endpoint_of(path: bytes) -> tuple[str, bytes]:
    """Endpoint name (decoded) and operation of `/endpoints/{name}/{operation}`."""
    name, _, operation = path[len(PREFIX) :].partition(b"/")
    return unquote_to_bytes(name).decode("utf-8", "replace"), operation


def _is_openai(operation: bytes) -> bool:
    """`openai/v1/...`, or the same below `inference-components/{name}/`."""
    return operation.startswith((b"openai/", b"inference-components/"))
