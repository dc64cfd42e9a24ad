"""Open Inference Protocol version 2 over gRPC.

The server of its port, over the gateway's own HTTP/2 (decision 0032), and the methods of the
service. `grpc_calls.py` is what a call is, `grpc_infer.py` serves inference, `grpc_health.py` and
`grpc_reflection.py` gRPC's own services. A call is authorized by its head, before any of its
messages is kept.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from penstock.api.model_names import ModelName, endpoint_of, parse
from penstock.api.oip.grpc_access import GrantOf, authorized
from penstock.api.oip.grpc_calls import CallBounds, GrpcCall, UnaryCall
from penstock.api.oip.grpc_extensions import GrpcExtensions, repository_parameters
from penstock.api.oip.grpc_health import GrpcHealth
from penstock.api.oip.grpc_infer import GrpcInference, InferCall
from penstock.api.oip.grpc_reflection import REQUEST_BYTES_MAX, GrpcReflection
from penstock.api.oip.grpc_status import GrpcStatus
from penstock.api.oip.grpc_stream_calls import StreamCall
from penstock.api.oip.http import body_limit
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_tensors import SharedTensors
from penstock.config import LimitConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.core.request.grants import LOAD_TARGET_MODEL, MODEL_METADATA, Grant
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http2.exchange import Http2Carrier, Http2Exchange
from penstock.gateway.http2.listener import Http2Listener
from penstock.gateway.http_server.server import tls_of
from penstock.wire import grpc_health, grpc_reflection
from penstock.wire.grpc_messages import GrpcFault
from penstock.wire.http2.events import RequestReceived
from penstock.wire.http2.spec import Http2Spec
from penstock.wire.oip_messages import METHODS, SERVICE, method_classes

#: Room for what surrounds the tensors in a body of the largest size.
ENVELOPE_BYTES_MAX: Final = 65_536
#: Calls of one connection at once; a client that wants more waits.
STREAMS_OF_ONE_MAX: Final = 128
METADATA_BYTES_MAX: Final = 32 << 10
#: Timeouts are looked at this often within the shortest of them.
_TICKS_IN_TIMEOUT: Final = 4

Unary = Callable[..., Any]  #: returns the answer's fields, or an awaitable of them
#: Makes the call of a request; its message comes later.
Open = Callable[[Http2Carrier, RequestReceived, Grant | None], GrpcCall]

_NOT_GRPC: Final = ((b":status", b"415"),)
_NOT_POST: Final = ((b":status", b"405"), (b"allow", b"POST"))


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
        bytes_max = (
            limits.grpc_message_bytes_max or limits.oip_body_bytes_max
        ) + ENVELOPE_BYTES_MAX
        self._bounds = CallBounds(bytes_max, limits.body_timeout_s, asyncio.Lock())
        self._grant_of = grant_of
        self._served = dispatcher.served
        self._models = models
        self._health = GrpcHealth(
            models, authenticates=grant_of is not None, served=dispatcher.served
        )
        tensors = SharedTensors(models.shared, budget, body_limit(limits).bytes_max)
        self._inference = GrpcInference(dispatcher, models, tensors, forwarding)
        self._methods = self._methods_by_path()
        shortest_s = min(limits.head_timeout_s, limits.body_timeout_s)
        self._listener = Http2Listener(
            self._open,
            dispatcher.clock,
            budget,
            spec=Http2Spec(
                streams_max=STREAMS_OF_ONE_MAX, header_list_bytes_max=METADATA_BYTES_MAX
            ),
            connections_max=limits.connections_max,
            head_timeout_s=limits.head_timeout_s,
            tick_s=shortest_s / _TICKS_IN_TIMEOUT,
        )

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

        Raises CallerError `port-in-use`, `tls-unusable` and the like.
        """
        tls = tls_of(tls_cert, tls_key, "h2")
        return await self._listener.start(host, port, tls=tls, reuse_port=reuse_port)

    async def stop(self, timeout_s: float) -> None:
        """Lets clients call elsewhere and calls in progress end, then cuts them."""
        await self._listener.stop(timeout_s)

    # Calls

    def _open(self, connection: Http2Carrier, request: RequestReceived) -> Http2Exchange:
        """The call of a request's head."""
        if request.method != b"POST":
            return _refused(connection, request, _NOT_POST)
        if not _is_grpc(request):
            return _refused(connection, request, _NOT_GRPC)
        grant = None
        try:
            if self._grant_of is not None:
                grant = authorized(self._grant_of, request.path, request.fields)
        except PenstockError as error:
            call = UnaryCall(connection, request, self._bounds, None)
            call.fail(error)
            return call
        make = self._methods.get(request.path)
        if make is None:
            call = UnaryCall(connection, request, self._bounds, None)
            call.fail_with(GrpcStatus.UNIMPLEMENTED, "Method not found!")
            return call
        return make(connection, request, grant)

    def _methods_by_path(self) -> dict[bytes, Open]:
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
        methods: dict[str, Open] = {
            "ModelInfer": self._open_infer,
            "ModelStreamInfer": self._streaming(self._inference.stream),
        }
        for method in METHODS:
            if method not in methods:
                answer = answers.get(method) or extensions[method]
                methods[method] = self._unary(
                    answer, *method_classes(method), extends=method in extensions
                )
        found = {f"/{SERVICE}/{name}".encode(): make for name, make in methods.items()}
        found[f"/{grpc_health.SERVICE}/Check".encode()] = self._open_check
        found[f"/{grpc_health.SERVICE}/Watch".encode()] = self._streaming(self._health.watch)
        for version in grpc_reflection.VERSIONS:
            path = f"/{version.service}/{grpc_reflection.METHOD}".encode()
            found[path] = self._streaming(
                GrpcReflection(version).serve,
                self._bounds._replace(message_bytes_max=REQUEST_BYTES_MAX),
            )
        return found

    def _open_infer(
        self, connection: Http2Carrier, request: RequestReceived, grant: Grant | None
    ) -> GrpcCall:
        return _begun(InferCall(self._inference, connection, request, self._bounds, grant))

    def _open_check(
        self, connection: Http2Carrier, request: RequestReceived, grant: Grant | None
    ) -> GrpcCall:
        call = UnaryCall(connection, request, self._bounds, grant, self._health.check)
        if self._health.tells_server(call):
            call.take(b"")
            return call
        return _begun(call)

    def _streaming(
        self, serve: Callable[[StreamCall], Any], bounds: CallBounds | None = None
    ) -> Open:
        bounds = bounds or self._bounds

        def make(
            connection: Http2Carrier, request: RequestReceived, grant: Grant | None
        ) -> GrpcCall:
            return _begun(StreamCall(connection, request, bounds, grant, serve))

        return make

    def _unary(
        self, answer: Unary, request_class: Any, response_class: Any, *, extends: bool
    ) -> Open:
        """`extends`: the method is of no model, and its answer takes the caller's address."""
        # Two of them need no credentials; their messages are not received.
        says_nothing = not request_class.DESCRIPTOR.fields

        def handle(call: UnaryCall, message: bytes) -> bytes | Awaitable[bytes]:
            asked = request_class() if says_nothing else _message(request_class, message)
            if extends:
                fields = answer(asked, call.client)
            else:
                self._check_granted(call, request_class, asked)
                fields = answer(asked)
            if inspect.isawaitable(fields):
                return awaited(fields)
            return serialized(fields)

        def serialized(fields: Any) -> bytes:
            message = json_format.ParseDict(fields, response_class(), ignore_unknown_fields=True)
            return bytes(message.SerializeToString())

        async def awaited(fields: Awaitable[Any]) -> bytes:
            return serialized(await fields)

        def make(
            connection: Http2Carrier, request: RequestReceived, grant: Grant | None
        ) -> GrpcCall:
            call = UnaryCall(connection, request, self._bounds, grant, handle)
            if says_nothing:
                call.take(b"")
                return call
            return _begun(call)

        return make

    # Methods

    def _parsed(self, name: str) -> ModelName:
        return parse(name, self._served)

    def _check_granted(self, call: GrpcCall, request_class: Any, asked: Any) -> None:
        if "name" in request_class.DESCRIPTOR.fields_by_name:
            call.granted(MODEL_METADATA, endpoint_of(asked.name, self._served))
        elif "model_name" in request_class.DESCRIPTOR.fields_by_name:
            call.granted(LOAD_TARGET_MODEL, endpoint_of(asked.model_name, self._served))

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


def _is_grpc(request: RequestReceived) -> bool:
    for name, value in request.fields:
        if name == b"content-type" and value.startswith(b"application/grpc"):
            return True
    return False


def _refused(connection: Http2Carrier, request: RequestReceived, answer: Any) -> Http2Exchange:
    refused = _Refused(connection, request.stream)
    refused.finish(answer)
    return refused


class _Refused(Http2Exchange):
    """A request that is no call."""

    __slots__ = ()

    def on_data(self, data: bytes, flow_bytes: int) -> None:
        self.acknowledge(flow_bytes)

    def on_gone(self) -> None:
        """Nothing is kept of it."""


def _begun(call: GrpcCall) -> GrpcCall:
    try:
        call.read_head()
    except GrpcFault as fault:
        call.fail_with(fault.status, fault.words)
    return call


def _message(request_class: Any, data: bytes) -> Any:
    try:
        return request_class.FromString(data)
    except Exception as cause:
        raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
