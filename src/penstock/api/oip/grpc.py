"""Open Inference Protocol version 2 over gRPC.

ModelInfer works on bytes: it scans the message for the model's name, and sends the message to the
instance unchanged. The client's deadline and cancellation apply to the request; grpcio makes one
task per call. `grpc_stream.py` serves a call of ModelStreamInfer.

A call is authorized by its head, before any of its messages is received (`grpc_calls.py`). So
every method is registered as one of a stream of messages, which is the same on the wire: for any
other kind, grpcio receives the message before it calls the handler.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from penstock.api.answering import bound, door_parameters
from penstock.api.model_names import ModelName, endpoint_of, parse
from penstock.api.oip.grpc_calls import (
    LOOKAHEAD_BYTES,
    AccessInterceptor,
    GrantOf,
    MessageReader,
    granted,
)
from penstock.api.oip.grpc_extensions import GrpcExtensions, repository_parameters
from penstock.api.oip.grpc_health import GrpcHealth
from penstock.api.oip.grpc_stream import InferNames, InferStream, infer_names
from penstock.api.oip.http import body_limit
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_tensors import MARK, SharedOutputs, SharedTensors, message_out
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.core.request.grants import INVOKE_ENDPOINT, LOAD_TARGET_MODEL, MODEL_METADATA
from penstock.errors import (
    CallerError,
    InternalError,
    ModelError,
    NotNowError,
    PenstockError,
    with_hint,
)
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation, Responder
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.listener_state import Denied
from penstock.runtimes.triton_errors import BY_CODE
from penstock.wire.aws.errors import ACCESS_DENIED
from penstock.wire.frames import RequestMeta, encode_request_meta
from penstock.wire.oip_messages import METHODS, SERVICE, method_classes

CONTENT_TYPE = "application/x-oip-grpc"
#: Room for what surrounds the tensors in a body of the largest size.
ENVELOPE_BYTES_MAX = 65_536
#: Calls of one connection at once; a client that wants more waits. Each may send a little early.
STREAMS_OF_ONE_MAX = 128
METADATA_BYTES_MAX = 32 << 10
#: Detects a peer that vanished without a message, and cuts one that only pings.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 60_000, 20_000
PING_INTERVAL_MS_MIN, PING_STRIKES_MAX = 10_000, 3
IDLE_CONNECTION_MS_MAX = 600_000
_STREAM = "stream_infer"
VERSION_CHARS_MAX = 64
#: At most this many metas are cached, since callers choose the names in them.
_METAS_MAX = 1024

Unary = Callable[..., Any]  #: returns the answer's fields, or an awaitable of them


class OipGrpc:
    """The gRPC server. `start`, then `stop`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: OipModels,
        limits: LimitConfig,
        *,
        grant_of: GrantOf | None = None,
        budget: BodyBudget,
        forwarding: HeaderForwarding | None = None,
    ) -> None:
        """
        Args:
            grant_of: the grant of a bearer token; raises for an unauthorized one. None = no
                authentication.
            budget: for bodies, shared with the other doors.
            forwarding: the entries of a call's metadata that models see; None: none.
        """
        self._forwarding = forwarding if forwarding is not None and forwarding.on else None
        self._bytes_max = (
            limits.grpc_message_bytes_max or limits.oip_body_bytes_max
        ) + ENVELOPE_BYTES_MAX
        self._reader = MessageReader(budget, self._bytes_max, limits.body_timeout_s)
        self._access = AccessInterceptor(grant_of, translate)
        self._served = dispatcher.served
        self._health = GrpcHealth(
            models,
            self._reader,
            _abort,
            authenticates=grant_of is not None,
            served=dispatcher.served,
        )
        self._dispatcher = dispatcher
        self._looked_for = frozenset(name.decode() for name in dispatcher.interest)
        self._models = models
        self._tensors = SharedTensors(models.shared, budget, body_limit(limits).bytes_max)
        self._server: Any = None

    async def start(
        self,
        host: str,
        port: int,
        *,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        reuse_port: bool = False,
    ) -> int:
        """Listens; returns the port. `reuse_port`: several gateway processes share it.

        Raises CallerError `port-in-use`.
        """
        options = [
            ("grpc.max_receive_message_length", self._bytes_max),
            ("grpc.max_send_message_length", -1),
            # Otherwise the kernel silently lets two servers share a port.
            ("grpc.so_reuseport", int(reuse_port)),
            ("grpc.max_concurrent_streams", STREAMS_OF_ONE_MAX),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            # Bounds what a call may send before its message is requested, and the size of a frame.
            ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
            ("grpc.http2.max_frame_size", LOOKAHEAD_BYTES),
            ("grpc.http2.bdp_probe", 0),  # else windows grow with the client's sending rate
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
            ("grpc.http2.max_ping_strikes", PING_STRIKES_MAX),
            ("grpc.max_connection_idle_ms", IDLE_CONNECTION_MS_MAX),
        ]
        self._server = grpc.aio.server(options=options, interceptors=(self._access,))
        self._server.add_generic_rpc_handlers((self._handlers(), self._health.handlers()))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls_cert is not None and tls_key is not None:
                credentials = _credentials(tls_cert, tls_key)
                bound = self._server.add_secure_port(address, credentials)
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError as cause:
            raise CallerError(
                "port-in-use",
                f"Can't listen for gRPC on {address}.",
                hint="Another program may listen there: choose another port; 0 takes any free one.",
            ) from cause
        await self._server.start()
        return int(bound)

    async def stop(self, timeout_s: float) -> None:
        """Refuses new calls, lets calls in progress end, then cuts them."""
        if self._server is not None:
            await self._server.stop(timeout_s)

    # Methods

    def _handlers(self) -> Any:
        handlers: dict[str, Any] = {
            "ModelInfer": grpc.stream_unary_rpc_method_handler(self._model_infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._model_stream_infer),
        }
        answers: dict[str, Unary] = {
            "ServerLive": lambda _: {"live": True},
            "ServerReady": lambda _: {"ready": self._models.server_ready()},
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda _: self._models.server_metadata(),
            "ModelMetadata": lambda asked: self._models.metadata(
                self._parsed(asked.name), asked.version
            ),
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": lambda asked: self._models.load(
                self._parsed(asked.model_name), overrides=bool(asked.parameters)
            ),
            "RepositoryModelUnload": lambda asked: self._models.unload(
                self._parsed(asked.model_name), repository_parameters(asked)
            ),
        }
        extensions = GrpcExtensions(self._models).methods()
        for method in METHODS:
            if method not in handlers:
                answer = answers.get(method) or extensions[method]
                handlers[method] = grpc.stream_unary_rpc_method_handler(
                    self._unary(answer, *method_classes(method), extends=method in extensions)
                )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(
        self, answer: Unary, request_class: Any, response_class: Any, *, extends: bool
    ) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
        """`extends`: the method is of no model, and its answer takes the caller's address."""
        # Two of them need no credentials; their messages must not take the turns of other calls.
        says_nothing = not request_class.DESCRIPTOR.fields

        async def handle(requests: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                if says_nothing:
                    asked = request_class()
                else:
                    asked = _message(
                        request_class, await self._reader.first(requests, context.peer())
                    )
                if extends:
                    fields = answer(asked, context.peer())
                else:
                    self._check_granted(request_class, asked)
                    fields = answer(asked)
                if inspect.isawaitable(fields):
                    fields = await fields
            except PenstockError as error:
                await _abort(context, error)
            message = json_format.ParseDict(fields, response_class(), ignore_unknown_fields=True)
            return bytes(message.SerializeToString())

        return handle

    def _parsed(self, name: str) -> ModelName:
        return parse(name, self._served)

    def _check_granted(self, request_class: Any, asked: Any) -> None:
        if "name" in request_class.DESCRIPTOR.fields_by_name:
            granted(MODEL_METADATA, endpoint_of(asked.name, self._served))
        elif "model_name" in request_class.DESCRIPTOR.fields_by_name:
            granted(LOAD_TARGET_MODEL, endpoint_of(asked.model_name, self._served))

    def _model_ready(self, asked: Any) -> dict[str, Any]:
        """An unknown model is not ready; like Triton, this is no error."""
        try:
            return {"ready": self._models.model_ready(self._parsed(asked.name), asked.version)}
        except CallerError:
            return {"ready": False}

    async def _model_config(self, asked: Any) -> dict[str, Any]:
        return {"config": await self._models.config(self._parsed(asked.name), asked.version)}

    async def _model_statistics(self, asked: Any) -> dict[str, Any]:
        name = self._parsed(asked.name) if asked.name else None
        return {"model_stats": await self._models.statistics(name, asked.version)}

    async def _index(self, asked: Any) -> dict[str, Any]:
        return {"models": await self._models.index(ready_only=asked.ready)}

    async def _model_infer(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        waiter = AwaitedReply(self._dispatcher)
        shared: SharedOutputs | None = None
        try:
            request = await self._reader.first(requests, context.peer())
            if self._models.shared.on and MARK in request:
                request, shared = await self._tensors.message_in(request, context.peer())
            invocation, _ = self._invocation(request, context, "", waiter)
            reply = await waiter.get(invocation)
            body = reply.body if shared is None else message_out(reply.body, shared)
        except PenstockError as error:
            await _abort(context, error)
        finally:
            if shared is not None:
                shared.leave()
        # grpcio does not report when the last byte is sent; returning the message is the closest
        # moment.
        asyncio.get_running_loop().call_soon(self._dispatcher.written, invocation)
        return body

    async def _model_stream_infer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """A coroutine that writes, not a generator: grpcio cancels only a coroutine at once."""

        def begin(request: bytes, responder: Responder) -> tuple[Invocation, InferNames]:
            invocation, names = self._invocation(request, context, _STREAM, responder)
            invocation.stream = StreamObserved()
            return invocation, names

        try:
            stream = InferStream(self._dispatcher, begin, lambda error: translate(error)[1])
            with self._reader.stream(requests, context.peer()) as messages:
                await stream.run(messages, context.write)
        except PenstockError as error:
            await _abort(context, error)

    def _invocation(
        self, request: bytes, context: Any, operation: str, responder: Responder
    ) -> tuple[Invocation, InferNames]:
        names = infer_names(request)
        granted(INVOKE_ENDPOINT, endpoint_of(names.model, self._served))
        model = self._parsed(names.model)
        if len(names.version) > VERSION_CHARS_MAX:
            raise CallerError("version-too-long", "The version is longer than 64 characters.")
        target, component = bound(self._dispatcher, model)
        if names.version:
            self._models.check_version(model, names.version)
        received = self._dispatcher.clock.monotonic()
        left_s = context.time_remaining()
        rare = _carried(context, self._looked_for) if self._looked_for else None
        make = Invocation if rare is None else functools.partial(_Carrying, rare)
        invocation = make(
            model.endpoint,
            self._meta(operation, target, names.version, model.served, context),
            request,
            responder,
            received=received,
            deadline=received + left_s if left_s is not None else None,
            door="oip-grpc",
        )
        if model.target is not None:
            invocation.affinity = Affinity(model=target, component=component)
        return invocation, names

    def _meta(
        self, operation: str, target: str | None, version: str, served: str, context: Any
    ) -> bytes:
        if self._forwarding is not None:
            headers = self._forwarding.chosen(context.invocation_metadata() or ())
            if headers:
                parameters = door_parameters(
                    operation=operation, version=version, model=served, headers=headers
                )
                return _meta_with(target, parameters)
        return _meta_of(operation, target, version, served)


class _Carrying(Invocation):
    """A request with headers that the server forwards or reads."""

    __slots__ = ("rare",)

    def __init__(self, rare: dict[bytes, bytes], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rare = rare


def _carried(context: Any, looked_for: frozenset[str]) -> dict[bytes, bytes] | None:
    """The entries of a call's metadata that are in `looked_for`; None where there are none."""
    found = {
        key.encode(): value.encode("latin-1", "replace")
        for key, value in context.invocation_metadata() or ()
        if key in looked_for and isinstance(value, str)
    }
    return found or None


@functools.lru_cache(maxsize=_METAS_MAX)
def _meta_of(operation: str, target: str | None, version: str, served: str) -> bytes:
    return _meta_with(target, door_parameters(operation=operation, version=version, model=served))


def _meta_with(target: str | None, parameters: str | None) -> bytes:
    return encode_request_meta(
        RequestMeta(
            content_type=CONTENT_TYPE,
            target_model=target,
            door="oip-grpc",
            parameters=parameters,
        )
    )


def translate(error: PenstockError) -> tuple[Any, str]:
    """The one table from Penstock's errors to gRPC's."""
    code = grpc.StatusCode
    message = with_hint(error.message, error.hint)
    if isinstance(error, Denied):
        known = error.code == ACCESS_DENIED
        return (code.PERMISSION_DENIED if known else code.UNAUTHENTICATED), message
    if isinstance(error, ModelError):
        own = BY_CODE.get(error.code)
        if own is not None:
            return code[own.grpc], error.original_message
        by_client = 400 <= error.original_status < 500
        return (code.INVALID_ARGUMENT if by_client else code.INTERNAL), error.original_message
    if isinstance(error, CallerError):
        if error.code == "endpoint-not-found":
            return code.NOT_FOUND, f"Request for unknown model: {message}"
        if error.code == "not-served":
            return code.UNIMPLEMENTED, message
        if error.code in ("message-too-slow", "stream-unread"):
            return code.DEADLINE_EXCEEDED, message
        if error.status == 501:
            return code.UNIMPLEMENTED, message
        if error.status == 403:
            return code.PERMISSION_DENIED, message
        return (code.NOT_FOUND if error.status == 404 else code.INVALID_ARGUMENT), message
    if isinstance(error, NotNowError):
        if error.code in ("deadline-passed", "no-capacity-in-time"):
            return code.DEADLINE_EXCEEDED, message
        return (code.RESOURCE_EXHAUSTED if error.status == 429 else code.UNAVAILABLE), message
    return code.INTERNAL, f"internal error ({error.code})"


def _credentials(tls_cert: Path, tls_key: Path) -> Any:
    return grpc.ssl_server_credentials([(tls_key.read_bytes(), tls_cert.read_bytes())])


async def _abort(context: Any, error: PenstockError) -> Any:
    await context.abort(*translate(error))
    raise InternalError("unreachable", "abort raises")


def _message(request_class: Any, data: bytes) -> Any:
    try:
        return request_class.FromString(data)
    except Exception as cause:
        raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
