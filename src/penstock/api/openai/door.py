"""OpenAI's API: chat, completions, responses, embeddings, at /v1/ and at SageMaker's path.

The body goes to the instance unchanged, with the name of the operation. The body itself says
whether the answer streams, and pieces are passed on one by one. This door knows paths, errors and
heads, but no messages or tokens.

`/v1/models` lists the endpoints with an OpenAI API, and their components, as models.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

import orjson

from penstock.api.answering import JsonResponder, bound, door_parameters, only
from penstock.api.model_names import ModelName, endpoint_of, parse
from penstock.api.openai import errors
from penstock.api.openai.request import (
    PREFIX,
    READ_AT_ONCE_BYTES,
    OpenAiPath,
    asked_of,
    check_encoding,
    model_of,
    model_of_large,
    no_model,
)
from penstock.api.runtime.request import (
    DEADLINE_MS,
    INFERENCE_COMPONENT,
    PREFIX_ID,
    TARGET_MODEL,
    deadline_s,
    inference_component,
    target_model,
)
from penstock.core.deployment.served_names import listed
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.call import Call, status_line
from penstock.wire.frames import Reply, RequestMeta, encode_request_meta

OWNER = "penstock"
CONTENT_ENCODING = b"content-encoding"
#: Tasks with answers that the API has a form for.
TASKS = ("text-generation", "feature-extraction")


class OpenAiModels:
    """Reads the gateway's endpoints."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        #: the gateway's start, because it does not know when a model was created
        self._created = int(dispatcher.clock.wall())

    def listed(self, only: str | None = None) -> dict[str, Any]:
        """All models with this API, or only those of the endpoint that the path names."""
        names = self._dispatcher.endpoint_names() if only is None else [only]
        names = [one for name in names for one in self._models_of(name)]
        return {"object": "list", "data": [self._card(name) for name in names if self._has(name)]}

    def _models_of(self, name: str) -> list[str]:
        """The endpoint's model names; an endpoint of components has one for each. Then the names
        under which it is served besides."""
        routes = self._dispatcher.routes(name)
        if routes is None:
            return [name]
        own = [f"{name}:{one.component}" for one in routes.variants]
        named = own if routes.takes_components else [name]
        return list(dict.fromkeys((*named, *listed(routes.served_names))))

    def card(self, name: str, only: str | None = None) -> dict[str, Any]:
        """One of the models, or a loaded target model. Raises CallerError (404).

        `only`: the endpoint that the path names; the model must belong to it.
        """
        of = endpoint_of(name, self._dispatcher.served)
        others = only is not None and only.lower() != of.lower()
        if others or not self._has(name):
            raise no_model(name)
        return self._card(name)

    def _has(self, name: str) -> bool:
        try:
            endpoint, target, _ = parse(name, self._dispatcher.served)
        except CallerError:  # no target has this name
            return False
        routes = self._dispatcher.routes(endpoint)
        takes_components = routes is not None and routes.takes_components
        if target is not None and not takes_components:  # only its host knows what it does
            return self._dispatcher.is_loaded(endpoint, target)
        return routes is not None and any(
            _answers(variant.model) and variant.component == (target or "")
            for variant in routes.variants
        )

    def _card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": OWNER}


def _answers(model: Mapping[str, Any]) -> bool:
    """Whether the API has a form for its answers. A pipeline's texts are those of a chat; of an
    ensemble only tensors come back."""
    chats = "pipeline" in model and model.get("platform") != "ensemble"
    return chats or model.get("task") in TASKS


__all__ = ["INTEREST", "PREFIX", "OpenAiDoor"]

#: Header names that this door needs in `Call.rare`.
INTEREST = (CONTENT_ENCODING, DEADLINE_MS, INFERENCE_COMPONENT, PREFIX_ID, TARGET_MODEL)

_JSON_HEAD = b"content-type: application/json\r\n"


#: At most this many metas are cached, since callers choose the names of target models.
_METAS_MAX = 1024


@functools.lru_cache(maxsize=_METAS_MAX)
def _meta(operation: str, target_model: str | None, served: str) -> bytes:
    return encode_request_meta(
        RequestMeta(
            content_type="application/json",
            target_model=target_model,
            door="openai",
            parameters=door_parameters(operation=operation, model=served),
        )
    )


_RESPONSES = "responses"
#: What says in the words of other doors that no such model answers.
_NO_MODEL = frozenset({
    "endpoint-not-found", "target-model-not-allowed", "target-model-not-found",
    "target-model-invalid", "component-not-found", "component-not-allowed",
})  # fmt: skip


class RequestState:
    """The state of one request."""

    __slots__ = ("events", "model", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.model = ""  #: as the request names it; empty until that is known
        self.events = 0  #: events that have left


class OpenAiDoor(JsonResponder):
    """The `Door` of OpenAI's API, and the `Responder` of its requests."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)
        self._dispatcher = dispatcher
        self._models = OpenAiModels(dispatcher)
        self._served = dispatcher.served
        self._reading: set[asyncio.Task[None]] = set()

    # Door

    def handle(self, call: Call) -> bool:
        try:
            asked = asked_of(call.path)
            if asked.operation == "models":
                self._answer_models(call, asked)
                return True
            only(call, b"POST")
            self._read(call, asked)
        except PenstockError as error:
            self.refuse(call, error)
            return True
        if asked.endpoint is not None or len(call.body) <= READ_AT_ONCE_BYTES:
            self._dispatcher.invoke(call)
        else:
            task = asyncio.get_running_loop().create_task(self._read_large(call))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return True

    async def _read_large(self, call: Call) -> None:
        try:
            self._ask_named(call, await model_of_large(call.body, self._served))
        except PenstockError as error:
            if call.connection is not None:
                self.refuse(call, error)
            return
        if call.connection is not None:  # else its client has disconnected
            self._dispatcher.invoke(call)

    def refuse(self, call: Call, error: PenstockError) -> None:
        state = call.context
        if isinstance(state, RequestState) and state.model and error.code in _NO_MODEL:
            error = no_model(state.model)
        head, body = errors.render(error)
        call.answer(head + _request_id(call), body)

    def _read(self, call: Call, asked: OpenAiPath) -> None:
        call.door = "openai"
        call.stream = StreamObserved()
        call.context = RequestState(asked.operation)
        call.responder = self
        rare = call.rare
        if rare is not None:
            check_encoding(rare.get(CONTENT_ENCODING))
            own_s = deadline_s(rare.get(DEADLINE_MS))
            if own_s is not None:
                call.deadline = call.received + own_s
        if asked.endpoint is not None:
            component = asked.component or inference_component(rare or {})
            self._ask(call, asked.endpoint, target_model(rare or {}), component)
        elif len(call.body) <= READ_AT_ONCE_BYTES:  # a larger body is parsed by `_read_large`
            self._ask_named(call, model_of(call.body, self._served))

    def _ask_named(self, call: Call, name: ModelName) -> None:
        """Invokes the model that the body names."""
        call.context.model = str(name)
        self._ask(call, name.endpoint, *bound(self._dispatcher, name), name.served)

    def _ask(
        self,
        call: Call,
        endpoint: str,
        target: str | None,
        component: str | None,
        served: str = "",
    ) -> None:
        """Invokes a known model, whose answer carries its `served` name if it has one."""
        state: RequestState = call.context
        call.endpoint = endpoint
        call.meta = _meta(state.operation, target, served)
        prefix = call.rare.get(PREFIX_ID) if call.rare is not None else None
        if prefix is not None or target is not None or component is not None:
            call.affinity = Affinity(prefix=prefix, model=target, component=component)

    def _answer_models(self, call: Call, asked: OpenAiPath) -> None:
        only(call, b"GET", b"HEAD")
        models = self._models
        within = asked.endpoint
        if within is not None and asked.component is not None:
            within = str(ModelName(within, asked.component))
        value: Any = models.listed(within) if asked.model is None else None
        if asked.model is not None:
            value = models.card(asked.model, asked.endpoint)
        call.answer(status_line(200) + _JSON_HEAD + _request_id(call), orjson.dumps(value))

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        invocation.answer(self.reply_head(reply.meta) + _request_id(invocation), reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            invocation.start(self.reply_head(meta or b"") + _request_id(invocation))
        state: RequestState = invocation.context
        if state.operation == _RESPONSES:  # their last event has a number, even one written here
            state.events += chunk.count(b"\n\n")
        invocation.send(chunk)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        if invocation.started:
            state: RequestState = invocation.context
            numbered = state.operation == _RESPONSES
            invocation.send(errors.event(error, state.events if numbered else None))
            invocation.finish()
        else:
            self.refuse(invocation, error)


def _request_id(call: Call) -> bytes:
    """OpenAI's form of the request id, which every answer carries."""
    return b"x-request-id: %b\r\n" % call.request_id.encode() if call.connection else b""
