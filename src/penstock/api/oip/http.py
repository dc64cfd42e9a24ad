"""Open Inference Protocol version 2 over HTTP, as KServe and Triton speak it.

`infer` is a hot path: its body goes to the instance unread, JSON and the binary tensor extension
alike, and only its length header is passed on. The same holds for `generate` and
`generate_stream`, Triton's extension for text, whose pieces leave as server-sent events. Everything
else is answered from memory, except what only the hosts of target models know. Errors are
`{"error": "..."}`.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import orjson

from penstock.api.answering import JsonResponder, bound, door_parameters, kept, only
from penstock.api.model_names import (
    GENERATE_STREAM,
    INFERS,
    TRACE_SETTING,
    OipTarget,
    model_target,
    not_found,
    parts_of,
    repository_target,
)
from penstock.api.oip.http_extensions import OipExtensions, question
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_tensors import (
    MARK,
    SharedOutputs,
    SharedTensors,
    json_out,
    leaving,
)
from penstock.api.runtime.request import DEADLINE_MS, deadline_s
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.errors import (
    CallerError,
    InternalError,
    ModelError,
    NotNowError,
    PenstockError,
    with_hint,
)
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http.listener_state import BodyLimit
from penstock.wire.frames import Reply, RequestMeta, encode_request_meta

log = logging.getLogger(__name__)

PREFIX = b"/v2"
HEADER_LENGTH = b"inference-header-content-length"
CONTENT_ENCODING = b"content-encoding"
#: Header names that this door needs in `Call.rare`.
INTEREST = (HEADER_LENGTH, CONTENT_ENCODING, DEADLINE_MS)

_LENGTH_DIGITS_MAX = 10
_JSON_HEAD = b"content-type: application/json\r\n"
#: (content type, length header, version, target model, served name)
_MetaKey = tuple[bytes | None, bytes | None, str, str | None, str]
#: Bound against a small body that inflates: tensors above 1 MiB hardly ever compress this much.
_RATIO_MAX = 100
_INFLATED_FREE_BYTES = 1 << 20
#: Statuses of models that callers see; 501 and 503 are what Triton's codes are over HTTP.
_MODEL_STATUSES = frozenset((*range(400, 500), 501, 503))
_WBITS = {b"gzip": 31, b"deflate": 15}


class OipDoor(JsonResponder):
    """The `Door` of `/v2`, and the `Responder` of its inferences."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: OipModels,
        limits: LimitConfig,
        bodies: BodyBudget | None = None,
        forwarding: HeaderForwarding | None = None,
    ) -> None:
        """
        Args:
            bodies: the budget of all doors; None: one of the limits' size.
            forwarding: the headers that models see; None: none.
        """
        super().__init__(dispatcher)
        self._dispatcher = dispatcher
        self._models = models
        self._served = dispatcher.served
        self._extensions = OipExtensions(models)
        self._shared = models.shared
        self._tensors = SharedTensors(
            models.shared,
            bodies or BodyBudget(limits.bodies_bytes_max),
            body_limit(limits).bytes_max,
        )
        self.written = leaving(dispatcher.written)
        self.abandoned = leaving(dispatcher.cancel)
        self._body_bytes_max = body_limit(limits).bytes_max
        self._targets: dict[
            bytes, OipTarget
        ] = {}  #: request target of an inference -> what it names
        dispatcher.served.on_change.append(self._targets.clear)
        self._metas: dict[_MetaKey, bytes] = {}
        self._forwarding = forwarding if forwarding is not None and forwarding.on else None
        self._asking: set[asyncio.Task[None]] = set()
        #: path after /v2 -> what answers a GET
        self._server_answers: dict[tuple[str, ...], Callable[[Call], None]] = {
            (): lambda call: _answer_json(call, models.server_metadata()),
            ("health", "live"): lambda call: call.answer(status_line(200), b""),
            ("health", "ready"): self._answer_ready,
            ("models", "stats"): self._answer_statistics,
        }

    # Door

    def handle(self, call: Call) -> bool:
        target = self._targets.get(call.url)
        try:
            if target is None or call.method != b"POST":
                target = self._target(call)
                if target is None:
                    return True
            self._infer(call, target)
        except PenstockError as error:
            self.refuse(call, error)
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        status, message = translate(error)
        head = status_line(status) + _JSON_HEAD
        if error.retry_after_s is not None:
            head += b"retry-after: %d\r\n" % max(1, round(error.retry_after_s))
        call.answer(head, orjson.dumps({"error": message}))

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        if isinstance(invocation.context, SharedOutputs):
            try:
                reply = json_out(reply, invocation.context)
            except PenstockError as error:
                self.refuse(invocation, error)
                return
        invocation.answer(self.reply_head(reply.meta), reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            invocation.start(self.reply_head(meta or b""))
        invocation.send(chunk)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        if not invocation.started:
            self.refuse(invocation, error)
        elif invocation.context is GENERATE_STREAM:
            invocation.send(b"data: %b\n\n" % orjson.dumps({"error": translate(error)[1]}))
            invocation.finish()
        else:
            invocation.abort()

    # Inference

    def _infer(self, call: Call, target: OipTarget) -> None:
        length = None
        rare = call.rare
        if rare is not None:
            length = rare.get(HEADER_LENGTH)
            if CONTENT_ENCODING in rare:
                call.body = inflate(call.body, rare[CONTENT_ENCODING], self._body_bytes_max)
            own_s = deadline_s(rare.get(DEADLINE_MS))
            if own_s is not None:
                call.deadline = call.received + own_s
        if self._shared.on and target.action == "infer" and MARK in call.body:
            self._spawn(self._infer_shared(call, target, length))
        else:
            self._send(call, target, length)

    async def _infer_shared(self, call: Call, target: OipTarget, length: bytes | None) -> None:
        """An inference with tensors in shared memory, or with a text that looks like it."""
        shared: SharedOutputs | None = None
        try:
            call.body, length, shared = await self._tensors.json_in(call, length)
            call.context = shared
            if call.connection is None:
                shared.leave()  # the client has gone
            else:
                self._send(call, target, length)
        except PenstockError as error:
            self._refuse_shared(call, shared, error)
        except Exception:
            log.exception("tensors in shared memory could not be read")
            message = "The tensors in shared memory could not be read."
            self._refuse_shared(call, shared, InternalError("internal", message))

    def _refuse_shared(
        self, call: Call, shared: SharedOutputs | None, error: PenstockError
    ) -> None:
        if shared is not None:
            shared.leave()
        self.refuse(call, error)

    def _send(self, call: Call, target: OipTarget, length: bytes | None) -> None:
        name = target.model
        call.endpoint = name.endpoint
        model, component = bound(self._dispatcher, name)
        if name.target is not None:
            call.affinity = Affinity(model=model, component=component)
        action = target.action
        headers = _headers(call, self._forwarding) if self._forwarding is not None else None
        if action == "infer":
            key = (call.content_type, length, target.version, model, name.served)
            known = self._metas.get(key) if not headers else None
            call.meta = known or self._learn_meta(key, target, headers)
        else:
            call.meta = self._generate_meta(target, model, headers)
            if action == GENERATE_STREAM:
                call.context = GENERATE_STREAM
                call.stream = StreamObserved()
        call.door = "oip"
        call.responder = self
        self._dispatcher.invoke(call)

    def _learn_meta(
        self, key: _MetaKey, target: OipTarget, headers: dict[str, str] | None
    ) -> bytes:
        content_type, length, version, target_model, served = key
        self._check_version(target)
        json_header_bytes = None
        if length is not None:
            if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
                raise CallerError(
                    "header-length-invalid",
                    f"Inference-Header-Content-Length is {length[:32]!r}, which is no length.",
                )
            json_header_bytes = int(length)
        if content_type is not None and len(content_type) > 1024:
            raise CallerError("header-too-long", "Content-Type is longer than 1024 characters.")
        meta = encode_request_meta(
            RequestMeta(
                content_type=content_type.decode("latin-1") if content_type is not None else None,
                target_model=target_model,
                json_header_bytes=json_header_bytes,
                door="oip",
                parameters=door_parameters(version=version, model=served, headers=headers),
            )
        )
        # A version is checked each time, since an update may remove it.
        if not version and not headers:
            chosen = (content_type or b"") + (target_model or "").encode() + served.encode()
            kept(self._metas, key, meta, chosen)
        return meta

    def _check_version(self, target: OipTarget) -> None:
        if target.version:
            self._models.check_version(target.model, target.version)

    def _generate_meta(
        self, target: OipTarget, model: str | None, headers: dict[str, str] | None
    ) -> bytes:
        """The meta of a generation. A generation takes so long that caching this is not worth
        it."""
        self._check_version(target)
        return encode_request_meta(
            RequestMeta(
                content_type="application/json",
                target_model=model,
                door="oip",
                parameters=door_parameters(
                    operation=target.action,
                    version=target.version,
                    model=target.model.served,
                    headers=headers,
                ),
            )
        )

    # Everything else

    def _target(self, call: Call) -> OipTarget | None:
        """The target of an inference; None for another path, which this answers."""
        path = call.path
        if path != PREFIX and not path.startswith(PREFIX + b"/"):
            raise not_found(path)
        parts = parts_of(path)
        if parts[:1] == ["models"] and len(parts) > 1 and parts[1:] != ["stats"]:
            target = model_target(parts[1:], path, self._served)
            if target.action in INFERS:
                only(call, b"POST")
                kept(self._targets, call.url, target, call.url)
                return target
            if target.action == TRACE_SETTING:
                self._later(call, self._extensions.trace(call, target.model))
                return None
            only(call, b"GET", b"HEAD")
            self._answer_about(call, target)
            return None
        self._answer_server(call, parts)
        return None

    def _answer_about(self, call: Call, target: OipTarget) -> None:
        models, name, version = self._models, target.model, target.version
        if target.action == "ready":
            if not models.model_ready(name, version):
                raise NotNowError("model-not-ready", f"Model {name} has no ready copy.")
            call.answer(status_line(200), b"")
        elif target.action == "config":
            self._later(call, models.config(name, version))
        elif target.action == "stats":
            self._later(call, models.statistics(name, version), within="model_stats")
        else:
            self._later(call, models.metadata(name, version))

    def _later(self, call: Call, answer: Awaitable[Any], *, within: str = "") -> None:
        """Answers once `answer` is there, as hosts of target models may be called first."""
        self._spawn(self._answer_later(call, answer, within))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer_later(self, call: Call, answer: Awaitable[Any], within: str) -> None:
        try:
            value = await answer
        except PenstockError as error:
            self.refuse(call, error)
        except Exception:
            log.exception("a question about models failed")
            self.refuse(call, InternalError("internal", "The question could not be answered."))
        else:
            _answer_json(call, {within: value} if within else value)

    def _answer_repository(self, call: Call, parts: list[str]) -> None:
        if parts == ["index"]:
            only(call, b"POST")
            asked = question(call.body)
            self._later(call, self._models.index(ready_only=asked.get("ready") is True))
            return
        if parts[:1] != ["models"]:
            raise not_found(call.path)
        target = repository_target(parts[1:], call.path, self._served)
        only(call, b"POST")
        if target.action == "unload":
            given = question(call.body).get("parameters")
            parameters = given if isinstance(given, dict) else {}
            self._later(call, self._models.unload(target.model, parameters))
        else:
            overrides = question(call.body).get("parameters")
            self._later(call, self._models.load(target.model, overrides=bool(overrides)))

    def _answer_server(self, call: Call, parts: list[str]) -> None:
        if parts[:1] == ["repository"]:
            self._answer_repository(call, parts[1:])
            return
        later = self._extensions.answer(call, parts)
        if later is not None:
            self._later(call, later)
            return
        answer = self._server_answers.get(tuple(parts))
        if answer is None:
            raise not_found(call.path)
        only(call, b"GET", b"HEAD")
        answer(call)

    def _answer_ready(self, call: Call) -> None:
        if not self._models.server_ready():
            raise NotNowError("stopping", "The server is stopping.")
        call.answer(status_line(200), b"")

    def _answer_statistics(self, call: Call) -> None:
        self._later(call, self._models.statistics(None, ""), within="model_stats")


def body_limit(limits: LimitConfig) -> BodyLimit:
    """The limit of a body below /v2, which has to fit the budget of all bodies, too."""
    own = BodyLimit(limits.oip_body_bytes_max, "limits.oip_body_bytes_max")
    return min(own, BodyLimit(limits.bodies_bytes_max, "limits.bodies_bytes_max"))


def translate(error: PenstockError) -> tuple[int, str]:
    """The one table from Penstock's errors to those of the protocol over HTTP."""
    if isinstance(error, InternalError):
        return 500, f"internal error ({error.code})"
    message = with_hint(error.message, error.hint)
    if isinstance(error, ModelError):
        status = error.original_status
        return (status if status in _MODEL_STATUSES else 500), error.original_message
    if error.code == "endpoint-not-found":
        return 404, f"Request for unknown model: {message}"
    return error.status, message


def _headers(call: Call, forwarding: HeaderForwarding) -> dict[str, str]:
    return forwarding.chosen(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in call.headers
    )


def inflate(body: bytes, encoding: bytes, bytes_max: int) -> bytes:
    """The decoded body. Raises CallerError for a broken, too large or unknown encoding."""
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WBITS:
        raise CallerError(
            "encoding-unknown",
            f"Content-Encoding {name[:32].decode('latin-1')} is unknown; gzip and deflate work.",
            status=415,
        )
    bytes_max = min(bytes_max, max(_INFLATED_FREE_BYTES, len(body) * _RATIO_MAX))
    inflater = zlib.decompressobj(_WBITS[name])
    try:
        data = inflater.decompress(body, bytes_max + 1)
    except zlib.error as cause:
        raise CallerError(
            "encoding-torn", f"The body is not the {name.decode()} data that it announces."
        ) from cause
    if len(data) > bytes_max:
        raise CallerError(
            "body-too-large", f"The body inflates to more than {bytes_max} bytes.", status=413
        )
    if not inflater.eof or inflater.unused_data:
        raise CallerError("encoding-torn", f"The {name.decode()} data of the body is cut short.")
    return data


def _answer_json(call: Call, value: Any) -> None:
    call.answer(status_line(200) + _JSON_HEAD, orjson.dumps(value))
