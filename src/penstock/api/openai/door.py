"""OpenAI's API: chat, completions, responses, embeddings, at /v1/ and at SageMaker's path.

With it what vLLM, TEI, Jina and Cohere have: rerank, score, tokenize, detokenize, tokenizer_info,
health, version.

The body goes to the instance unchanged, with the name of the operation. The body itself says
whether the answer streams, and pieces are passed on one by one. This door knows paths, errors and
heads, but no messages or tokens.

`/v1/models` lists the endpoints that answer chats, completions, embeddings or rerank, and their
components, as models.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from penstock import __version__
from penstock.api.answering import JsonResponder, bound, door_parameters, only
from penstock.api.model_names import ModelName, endpoint_of, parse
from penstock.api.openai import errors
from penstock.api.openai.cors import REQUEST_HEADERS, PageAccess
from penstock.api.openai.request import (
    MODEL_OPTIONAL,
    PREFIX,
    PREFIXES,
    READ_AT_ONCE_BYTES,
    REQUEST_METHOD,
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
from penstock.core.request.head_check import ORIGIN
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.call import Call, status_line
from penstock.wire.frames import Reply, RequestMeta, encode_request_meta

OWNER = "penstock"
CONTENT_ENCODING = b"content-encoding"
_CHATS: Final = ("chat", "completions", "responses")
_TOKENS: Final = ("tokenize", "detokenize")
_SCORES: Final = ("rerank", "score")
#: Task -> operations of its models.
_OF_TASK: Final[dict[Any, Sequence[str]]] = {
    "text-generation": (*_CHATS, *_TOKENS),
    "feature-extraction": ("embeddings", *_TOKENS),
    "text-classification": _TOKENS,
    "pair-classification": _TOKENS,
    "text-regression": _TOKENS,
    "multi-head": _TOKENS,
}
#: A model with one of these is listed.
_LISTED: Final = frozenset((*_CHATS, *_SCORES, "embeddings"))


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
        """The endpoint's model names, then those under which it is served besides."""
        routes = self._dispatcher.routes(name)
        served = listed(routes.served_names) if routes is not None else ()
        return list(dict.fromkeys((*self._own_names(name), *served)))

    def _own_names(self, name: str) -> list[str]:
        """An endpoint is one model; one of components has a model for each."""
        routes = self._dispatcher.routes(name)
        if routes is None or not routes.takes_components:
            return [name]
        return [f"{name}:{one.component}" for one in routes.variants]

    def sole(self, operation: str) -> ModelName | None:
        """The model that a body without one means: the only one with this operation."""
        found: list[str] = []
        for endpoint in self._dispatcher.endpoint_names():
            for name in self._own_names(endpoint):
                if operation in operations_of(self._described(name)):
                    found.append(name)
        return parse(found[0]) if len(found) == 1 else None

    def tokenizer_info(self, only: str | None) -> dict[str, Any]:
        """The special tokens of a model that generates text, as vLLM tells them; of the only one
        that has tokens where the path names none. Raises CallerError."""
        name = self.sole(_TOKENS[0]) if only is None else only
        if name is None:
            raise CallerError(
                "model-missing",
                "The path names no model, and several have tokens, or none has.",
                hint="Ask /endpoints/NAME/openai/tokenizer_info.",
            )
        generation = self._described(str(name)).get("generation") or {}
        if "special_tokens" not in generation:
            raise no_model(str(name))
        return {"tokenizer_class": "TokenizersBackend", **generation["special_tokens"]}

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
        return not _LISTED.isdisjoint(operations_of(self._described(name)))

    def _described(self, name: str) -> Mapping[str, Any]:
        """What is known of a model: of the variant that answers the most here."""
        endpoint, target, _ = parse(name, self._dispatcher.served)
        routes = self._dispatcher.routes(endpoint)
        variants = routes.variants if routes is not None else ()
        known = [variant.model for variant in variants if variant.component == (target or "")]
        return max(known, key=lambda model: len(operations_of(model)), default={})

    def _card(self, name: str) -> dict[str, Any]:
        card = {"id": name, "object": "model", "created": self._created, "owned_by": OWNER}
        model = self._described(name)
        generation = model.get("generation") or {}
        tokens_max = model.get("tokens_max") or generation.get("context_tokens_max")
        return card | {"max_model_len": tokens_max} if tokens_max else card


def operations_of(model: Mapping[str, Any]) -> Sequence[str]:
    """What a model answers here. A pipeline's texts are those of a chat; of an ensemble only
    tensors come back."""
    if "pipeline" in model:
        return ("chat", "completions") if model.get("platform") != "ensemble" else ()
    operations = _OF_TASK.get(model.get("task"), ())
    return (*operations, *_SCORES) if model.get("scores_pairs") else operations


def _within(asked: OpenAiPath) -> str | None:
    """The model that the path names."""
    if asked.endpoint is None or asked.component is None:
        return asked.endpoint
    return str(ModelName(asked.endpoint, asked.component))


__all__ = ["INTEREST", "PREFIX", "PREFIXES", "OpenAiDoor"]

#: Header names that this door needs in `Call.rare`.
INTEREST = (
    *(CONTENT_ENCODING, DEADLINE_MS, INFERENCE_COMPONENT, PREFIX_ID, TARGET_MODEL),
    *(ORIGIN, REQUEST_METHOD, REQUEST_HEADERS),
)

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
#: What no model is asked for.
_ANSWERED_HERE: Final = ("models", "tokenizer_info", "health", "version")
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

    def __init__(self, dispatcher: Dispatcher, origins: Sequence[str] = ()) -> None:
        """`origins`: of other servers' pages that may read answers."""
        super().__init__(dispatcher)
        self._dispatcher = dispatcher
        self._pages = PageAccess(origins)
        self._models = OpenAiModels(dispatcher)
        self._served = dispatcher.served
        self._reading: set[asyncio.Task[None]] = set()

    # Door

    def handle(self, call: Call) -> bool:
        try:
            preflight = self._pages.preflight(call.method, call.rare)
            if preflight is not None:
                call.start_without_body(preflight)
                return True
            asked = asked_of(call.path)
            if asked.operation in _ANSWERED_HERE:
                self._answer_here(call, asked)
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
            sole = self._sole(call.context.operation)
            self._ask_named(call, await model_of_large(call.body, self._served, sole))
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
        call.answer(head + self._own_lines(call), body)

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
            self._ask_named(call, model_of(call.body, self._served, self._sole(asked.operation)))

    def _sole(self, operation: str) -> ModelName | None:
        return self._models.sole(operation) if operation in MODEL_OPTIONAL else None

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

    def _answer_here(self, call: Call, asked: OpenAiPath) -> None:
        only(call, b"GET", b"HEAD")
        head = status_line(200) + self._own_lines(call)
        if asked.operation == "health":
            self._check_health(asked)
            call.answer(head, b"")
            return
        value: Any = {"version": __version__}
        if asked.operation == "models":
            value = self._models_asked(asked)
        elif asked.operation == "tokenizer_info":
            value = self._models.tokenizer_info(_within(asked))
        call.answer(head + _JSON_HEAD, orjson.dumps(value))

    def _check_health(self, asked: OpenAiPath) -> None:
        """The server lives; where the path names an endpoint, a copy of it answers. Raises
        PenstockError."""
        if asked.endpoint is None:
            return
        if self._dispatcher.routes(asked.endpoint) is None:
            raise no_model(asked.endpoint)
        if not self._dispatcher.is_ready(asked.endpoint, asked.component):
            raise NotNowError("not-ready", f"No copy of {asked.endpoint} takes requests now.")

    def _models_asked(self, asked: OpenAiPath) -> dict[str, Any]:
        if asked.model is None:
            return self._models.listed(_within(asked))
        return self._models.card(asked.model, asked.endpoint)

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        invocation.answer(self.reply_head(reply.meta) + self._own_lines(invocation), reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            invocation.start(self.reply_head(meta or b"") + self._own_lines(invocation))
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

    def _own_lines(self, call: Call) -> bytes:
        """What every answer carries: OpenAI's form of the request id, and leave for its page."""
        if call.connection is None:
            return b""
        return b"x-request-id: %b\r\n" % call.request_id.encode() + self._pages.lines(call.rare)
