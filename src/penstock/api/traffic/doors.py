"""The front doors of an orchestrator: each protocol's request fields and errors.

The body goes to a region unchanged. A door reads only what decides where it goes: endpoint,
session, prefix, deadline; and what is needed to continue a broken answer in pieces. Operations on
one region alone (its control plane, loading a target model) are not forwarded.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

import orjson

from penstock.api.model_names import ModelName
from penstock.api.oip.http import translate as oip_translate
from penstock.api.oip_paths import GENERATE_STREAM, INFERS, not_found, parts_of, split_model
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
from penstock.gateway.http.call import Call, status_line
from penstock.orchestrator import refusals
from penstock.orchestrator.asked import OrchestratedRequest
from penstock.orchestrator.forwarder import Forwarder

INTEREST: Final = (DEADLINE_MS, SESSION_ID, PREFIX_ID)

_JSON_HEAD: Final = b"content-type: application/json\r\n"
_RUNTIME: Final = {
    b"invocations": "invoke",
    b"invocations-response-stream": "stream",
    b"async-invocations": "async",
}
#: Members with which the prompt of a body begins.
_PROMPTS: Final = (b'"messages"', b'"prompt"', b'"input"', b'"text_input"')


class TrafficDoor(ABC):
    """A `Door` and the `Speech` of its requests."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self.written = forwarder.written
        self.abandoned = forwarder.abandoned

    def handle(self, call: Call) -> bool:
        try:
            asked = self.asked(call)
            if asked is not None:
                self._forwarder.take(call, asked)
        except PenstockError as error:
            self.refuse(call, error)
        return True

    @abstractmethod
    def asked(self, call: Call) -> OrchestratedRequest | None:
        """The request; None if it is answered here. Raises PenstockError."""

    @abstractmethod
    def refuse(self, call: Call, error: PenstockError) -> None:
        """Answers with an error in the protocol's form."""

    def broken(self, call: Call, error: PenstockError) -> None:
        call.abort()


class RuntimeTrafficDoor(TrafficDoor):
    """SageMaker's runtime, below /endpoints/."""

    def __init__(
        self, forwarder: Forwarder, openai: OpenAiTrafficDoor, *, account_id: str, region: str
    ) -> None:
        super().__init__(forwarder)
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
        return OrchestratedRequest(
            speech=self,
            endpoint=name,
            operation=kind,
            repeatable=kind != "async",
            session=session if session and session != NEW_SESSION else None,
            prefix=None if prefix is None else prefix + b"\0" + call.body[:PREFIX_BYTES_MAX],
            deadline_s=deadline_s(rare.get(DEADLINE_MS)),
            streams=kind == "stream",
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

    def __init__(self, forwarder: Forwarder) -> None:
        super().__init__(forwarder)
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, call: Call) -> OrchestratedRequest | None:
        found = asked_of(call.path)
        rare = call.rare or {}
        asked = OrchestratedRequest(
            speech=self,
            operation=found.operation,
            deadline_s=deadline_s(rare.get(DEADLINE_MS)),
            streams=True,
        )
        if found.operation == "models":
            asked.streams = False
            asked.endpoint = _named(found.model) or found.endpoint or ""
            return asked
        asked.prefix = prompt_of(call.body)
        asked.relay_of = lambda call, headers: OpenAiRelay.of(found.operation, call.body, headers)
        if found.endpoint is not None:
            asked.endpoint = found.endpoint
        elif len(call.body) <= READ_AT_ONCE_BYTES:
            asked.endpoint = model_of(call.body).endpoint
        else:
            task = asyncio.get_running_loop().create_task(self._read_large(call, asked))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return None
        return asked

    async def _read_large(self, call: Call, asked: OrchestratedRequest) -> None:
        try:
            name: ModelName = await model_of_large(call.body)
        except PenstockError as error:
            self.refuse(call, error)
            return
        if call.connection is not None:
            asked.endpoint = name.endpoint
            self._forwarder.take(call, asked)

    def refuse(self, call: Call, error: PenstockError) -> None:
        call.answer(*openai_errors.render(error))

    def broken(self, call: Call, error: PenstockError) -> None:
        if call.started == 2:  # in pieces: server-sent events
            # The events of a response are numbered, so a last one written here is too.
            numbered = call.context.asked.operation == "responses"
            relay = call.context.relay
            number = relay.events if numbered and isinstance(relay, EventRelay) else None
            call.send(openai_errors.event(error, number))
            call.finish()
        else:
            call.abort()


class OipTrafficDoor(TrafficDoor):
    """The Open Inference Protocol, below /v2."""

    def asked(self, call: Call) -> OrchestratedRequest | None:
        path, rare = call.path, call.rare or {}
        parts = parts_of(path)
        if parts == ["health", "live"]:
            call.answer(status_line(200), b"")
            return None
        if parts == ["health", "ready"]:
            self._forwarder.check_ready()
            call.answer(status_line(200), b"")
            return None
        if parts[:2] == ["repository", "models"]:
            raise refusals.region_only(path[:128].decode("latin-1"))
        asked = OrchestratedRequest(
            speech=self,
            operation="metadata",
            deadline_s=deadline_s(rare.get(DEADLINE_MS)),
            model_errors_are_500=True,
        )
        if parts[:1] == ["models"] and len(parts) > 1 and parts[1:] != ["stats"]:
            name, _, action = split_model(parts[1:])
            if not name:
                raise not_found(path)
            asked.endpoint = _named(name)
            if action in INFERS:
                asked.operation = action
                if action != "infer":
                    asked.streams = True
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


def prompt_of(body: bytes) -> bytes | None:
    """A body from its prompt on: the text before it differs between similar requests."""
    found = [at for at in (body.find(name) for name in _PROMPTS) if at >= 0]
    return body[min(found) :][:PREFIX_BYTES_MAX] if found else None


def _named(name: str | None) -> str:
    return (name or "").partition(":")[0]


def _is_openai(operation: bytes) -> bool:
    return operation.startswith((b"openai/", b"inference-components/"))
