"""The front doors of an orchestrator: each protocol's request fields and errors.

The body goes to a region unchanged. A door reads only what decides where it goes: endpoint,
session, prefix, deadline; and what is needed to continue a broken answer in pieces. Operations on
one region alone (its control plane, loading a target model) are not forwarded.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final, cast

import orjson

from penstock import __version__
from penstock.api.answering import only
from penstock.api.model_names import (
    GENERATE_STREAM,
    INFERS,
    ModelName,
    not_found,
    parts_of,
    split_model,
)
from penstock.api.model_names import endpoint_of as endpoint_of_model
from penstock.api.oip.http import translate as oip_translate
from penstock.api.openai import errors as openai_errors
from penstock.api.openai.request import (
    READ_AT_ONCE_BYTES,
    asked_of,
    model_of,
    model_of_large,
)
from penstock.api.runtime.door import endpoint_of
from penstock.api.runtime.errors import RuntimeErrors
from penstock.api.runtime.request import (
    DEADLINE_MS,
    NEW_SESSION,
    PREFIX_ID,
    SESSION_ID,
    deadline_s,
)
from penstock.api.runtime.stream import last_frame
from penstock.api.traffic.relays import (
    EventRelay,
    OpenAiRelay,
    frames_of_stream,
    whole_events,
)
from penstock.core.traffic.router import PREFIX_BYTES_MAX
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.asgi import head_of
from penstock.gateway.http.call import Call, status_line
from penstock.orchestrator import refusals
from penstock.orchestrator.dispatcher import RegionDispatcher
from penstock.orchestrator.link import ROOM
from penstock.orchestrator.request import OrchestratedRequest
from penstock.wire.frames import Reply
from penstock.wire.http_client import HOP_BY_HOP

INTEREST: Final = (DEADLINE_MS, SESSION_ID, PREFIX_ID)

_OPENAI_ID: Final = b"x-request-id"
#: Headers of a region's answer that concern only its connection, or only the orchestrator.
_NOT_PASSED_ON: Final = HOP_BY_HOP | {ROOM, _OPENAI_ID}
_JSON_HEAD: Final = b"content-type: application/json\r\n"
_RUNTIME: Final = {
    b"invocations": "invoke",
    b"invocations-response-stream": "stream",
    b"async-invocations": "async",
}
#: Members with which the prompt of a body begins.
_PROMPTS: Final = (b'"messages"', b'"prompt"', b'"input"', b'"text_input"')


class TrafficDoor(ABC):
    """A `Door` and the `Responder` of its requests, which are `Call`s."""

    def __init__(self, dispatcher: RegionDispatcher) -> None:
        self._dispatcher = dispatcher
        self.written = dispatcher.written
        self.abandoned = dispatcher.cancel

    def handle(self, call: Call) -> bool:
        try:
            asked = self.asked(call)
            if asked is not None:
                self._invoke(call, asked)
        except PenstockError as error:
            self.refuse(call, error)
        return True

    def _invoke(self, call: Call, asked: OrchestratedRequest) -> None:
        seconds = deadline_s((call.rare or {}).get(DEADLINE_MS))
        call.deadline = None if seconds is None else call.received + seconds
        call.responder, call.context = self, asked
        self._dispatcher.invoke(call)

    @abstractmethod
    def asked(self, call: Call) -> OrchestratedRequest | None:
        """The request, and into `call` its endpoint, and `stream` if it may be streamed; None if it
        is answered here. Raises PenstockError."""

    @abstractmethod
    def refuse(self, call: Call, error: PenstockError) -> None:
        """Answers with an error in the protocol's form."""

    def broken(self, call: Call, error: PenstockError) -> None:
        """Ends a partly sent answer, with the protocol's own error if it has one."""
        call.abort()

    def _named(self, model: str) -> str:
        """The endpoint of a model's name."""
        return endpoint_of_model(model, self._dispatcher.served)

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        call = cast(Call, invocation)
        call.answer(_head(call), reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        call = cast(Call, invocation)
        if not call.started:
            call.start(_head(call), length=call.context.length)
        call.send(chunk)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        call = cast(Call, invocation)
        call.send(reply.body)
        call.finish()

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        call = cast(Call, invocation)
        if call.started:
            self.broken(call, error)
        elif not call.finished:
            self.refuse(call, error)


class RuntimeTrafficDoor(TrafficDoor):
    """SageMaker's runtime, below /endpoints/."""

    def __init__(
        self,
        dispatcher: RegionDispatcher,
        openai: OpenAiTrafficDoor,
        *,
        account_id: str,
        region: str,
    ) -> None:
        super().__init__(dispatcher)
        self._openai = openai
        self._errors = RuntimeErrors(account_id, region)

    def asked(self, call: Call) -> OrchestratedRequest | None:
        name, operation = endpoint_of(call.path)
        if operation not in _RUNTIME and _is_openai(operation):
            call.front_door = self._openai
            self._openai.handle(call)
            return None
        kind = _RUNTIME.get(operation)
        if kind is None or call.method != b"POST":
            raise CallerError(
                "unknown-operation",
                f"{call.method.decode('latin-1')} {call.path[:128].decode('latin-1')} is no"
                " operation that is served here.",
                hint="POST /endpoints/{name}/invocations invokes an endpoint.",
                status=404,
            )
        rare = call.rare or {}
        session = rare.get(SESSION_ID, b"").decode("latin-1")
        prefix = rare.get(PREFIX_ID)
        call.endpoint = name
        if kind == "stream":
            call.stream = StreamObserved()
        return OrchestratedRequest(
            operation=kind,
            repeatable=kind != "async",
            session=session if session and session != NEW_SESSION else None,
            prefix=None if prefix is None else prefix + b"\0" + call.body[:PREFIX_BYTES_MAX],
            asks_room=kind == "invoke",
            relay_of=frames_of_stream if kind == "stream" else None,
        )

    def refuse(self, call: Call, error: PenstockError) -> None:
        name, operation = endpoint_of(call.path)
        if _is_openai(operation):
            self._openai.refuse(call, error)
        else:
            call.answer(*self._errors.render(error, name))

    def broken(self, call: Call, error: PenstockError) -> None:
        if endpoint_of(call.path)[1] == b"invocations-response-stream":
            call.send(last_frame(error))
            call.finish()
        else:
            call.abort()


class OpenAiTrafficDoor(TrafficDoor):
    """OpenAI's API, at /v1/ and at SageMaker's path."""

    def __init__(self, dispatcher: RegionDispatcher) -> None:
        super().__init__(dispatcher)
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, call: Call) -> OrchestratedRequest | None:
        only(call, b"POST", b"GET", b"HEAD")
        found = asked_of(call.path)
        asked = OrchestratedRequest(operation=found.operation)
        if found.operation == "version":
            call.answer(status_line(200) + _JSON_HEAD, orjson.dumps({"version": __version__}))
            return None
        if found.operation == "health" and found.endpoint is None:
            self._dispatcher.check_ready()
            call.answer(status_line(200), b"")
            return None
        if found.operation in ("models", "health"):
            call.endpoint = self._named(found.model or "") or found.endpoint or ""
            return asked
        call.stream = StreamObserved()
        asked.prefix = prompt_of(call.body)
        asked.relay_of = lambda call, headers: OpenAiRelay.of(found.operation, call.body, headers)
        if found.endpoint is not None:
            call.endpoint = found.endpoint
        elif len(call.body) <= READ_AT_ONCE_BYTES:
            call.endpoint = model_of(call.body, self._dispatcher.served).endpoint
        else:
            task = asyncio.get_running_loop().create_task(self._read_large(call, asked))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return None
        return asked

    async def _read_large(self, call: Call, asked: OrchestratedRequest) -> None:
        try:
            name: ModelName = await model_of_large(call.body, self._dispatcher.served)
            if call.connection is not None:
                call.endpoint = name.endpoint
                self._invoke(call, asked)
        except PenstockError as error:
            self.refuse(call, error)

    def refuse(self, call: Call, error: PenstockError) -> None:
        call.answer(*openai_errors.render(error))

    def broken(self, call: Call, error: PenstockError) -> None:
        if call.started == 2:  # in pieces: server-sent events
            # The events of a response are numbered, so a last one written here is too.
            numbered = call.context.operation == "responses"
            relay = call.context.relay
            number = relay.events if numbered and isinstance(relay, EventRelay) else None
            call.send(openai_errors.event(error, number))
            call.finish()
        else:
            call.abort()


class OipTrafficDoor(TrafficDoor):
    """The Open Inference Protocol, below /v2."""

    def asked(self, call: Call) -> OrchestratedRequest | None:
        path = call.path
        parts = parts_of(path)
        if parts == ["health", "live"]:
            call.answer(status_line(200), b"")
            return None
        if parts == ["health", "ready"]:
            self._dispatcher.check_ready()
            call.answer(status_line(200), b"")
            return None
        if parts[:2] == ["repository", "models"]:
            raise refusals.region_only(path[:128].decode("latin-1"))
        asked = OrchestratedRequest(operation="metadata", model_errors_are_500=True)
        call.endpoint = ""
        if parts[:1] == ["models"] and len(parts) > 1 and parts[1:] != ["stats"]:
            name, _, action = split_model(parts[1:], self._dispatcher.served)
            if not name:
                raise not_found(path)
            call.endpoint = self._named(name)
            if action in INFERS:
                asked.operation = action
                if action != "infer":
                    call.stream = StreamObserved()
                    asked.prefix = prompt_of(call.body)
                if action == GENERATE_STREAM:
                    asked.relay_of = whole_events
        return asked

    def refuse(self, call: Call, error: PenstockError) -> None:
        status, message = oip_translate(error)
        head = status_line(status) + _JSON_HEAD
        if error.retry_after_s is not None:
            head += b"retry-after: %d\r\n" % max(1, round(error.retry_after_s))
        call.answer(head, orjson.dumps({"error": message}))

    def broken(self, call: Call, error: PenstockError) -> None:
        if call.path.endswith(b"/" + GENERATE_STREAM.encode()):
            call.send(b"data: %b\n\n" % orjson.dumps({"error": oip_translate(error)[1]}))
            call.finish()
        else:
            call.abort()


def _head(call: Call) -> bytes:
    """The head of a region's answer, without headers that concern only one connection."""
    asked: OrchestratedRequest = call.context
    headers = [(name, value) for name, value in asked.headers if name not in _NOT_PASSED_ON]
    if call.connection and any(name == _OPENAI_ID for name, _ in asked.headers):
        headers.append((_OPENAI_ID, call.request_id.encode()))
    if call.route is not None:
        headers.append((b"x-penstock-region", call.route.variant.encode()))
    return head_of(asked.status, headers)


def prompt_of(body: bytes) -> bytes | None:
    """A body from its prompt on: the text before it differs between similar requests."""
    found = [at for at in (body.find(name) for name in _PROMPTS) if at >= 0]
    return body[min(found) :][:PREFIX_BYTES_MAX] if found else None


def _is_openai(operation: bytes) -> bool:
    return operation.startswith((b"openai/", b"inference-components/"))
