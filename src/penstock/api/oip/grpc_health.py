"""gRPC's health checking protocol: what load balancers and Kubernetes' probes call.

The service "" and the inference service are this server; any other name is a model. With
authentication, a caller without credentials gets the server's state, whichever service it named:
its message is not received, since strangers must not take room or learn which models there are.
(Triton answers so to everybody.) Check of an unknown model is NOT_FOUND, as the protocol says;
Watch says SERVICE_UNKNOWN, and goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from penstock.api.model_names import FindsServed, endpoint_of, parse
from penstock.api.oip.grpc_calls import MessageReader, granted, is_stranger
from penstock.api.oip.models import OipModels
from penstock.core.request.grants import MODEL_METADATA
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.wire import oip_messages
from penstock.wire.grpc_health import (
    NOT_SERVING,
    SERVICE,
    SERVICE_UNKNOWN,
    SERVING,
    HealthCheckRequest,
    HealthCheckResponse,
)

#: Names of this server; any other one is a model's.
_SERVER: Final = ("", oip_messages.SERVICE, SERVICE)
#: s between looks. Probes call every ten seconds or so; a client that watches wants it sooner.
LOOK_EVERY_S: Final = 0.5
#: Watches at once, of callers with credentials and of those without, each.
WATCHES_MAX: Final = 256

Abort = Callable[[Any, PenstockError], Awaitable[Any]]


class GrpcHealth:
    """The handlers of the service."""

    def __init__(
        self,
        models: OipModels,
        reader: MessageReader,
        abort: Abort,
        *,
        authenticates: bool,
        served: FindsServed,
    ) -> None:
        self._served = served
        self._models = models
        self._reader = reader
        self._abort = abort
        self._authenticates = authenticates
        self._watches: Counter[bool] = Counter()  #: by whether strangers have them

    def handlers(self) -> Any:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(self._check),
                "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
            },
        )

    async def _check(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            service = await self._service(requests, context)
            status = self._status(service)
            if status == SERVICE_UNKNOWN:
                raise CallerError(
                    "model-not-found", f"There is no service or model {service!r}.", status=404
                )
        except PenstockError as error:
            await self._abort(context, error)
        return _message(status)

    async def _watch(self, requests: AsyncIterator[bytes], context: Any) -> None:
        """Ends when the client goes away, or the server stops."""
        stranger = self._authenticates and is_stranger()
        try:
            if self._watches[stranger] >= WATCHES_MAX:
                raise NotNowError(
                    "watches-too-many",
                    f"{WATCHES_MAX} clients watch the server's health already.",
                    hint="Call Check instead, or try again later.",
                    retry_after_s=10.0,
                    status=429,
                )
            self._watches[stranger] += 1
            try:
                service = await self._service(requests, context)
                await self._tell(service, context)
            finally:
                self._watches[stranger] -= 1
        except PenstockError as error:
            await self._abort(context, error)

    async def _tell(self, service: str, context: Any) -> None:
        told = None
        while True:
            serving = self._models.server_ready()
            status = self._status(service)
            if status != told:
                await context.write(_message(status))
                told = status
            if not serving:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _service(self, requests: AsyncIterator[bytes], context: Any) -> str:
        if self._authenticates and is_stranger():
            return ""
        message = await self._reader.first(requests, context.peer())
        try:
            service = str(HealthCheckRequest.FromString(message).service)
        except Exception as cause:
            raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
        if service not in _SERVER:
            granted(MODEL_METADATA, endpoint_of(service, self._served))
        return service

    def _status(self, service: str) -> int:
        if not self._models.server_ready():
            return NOT_SERVING
        if service in _SERVER:
            return SERVING
        try:
            ready = self._models.model_ready(parse(service, self._served), "")
            return SERVING if ready else NOT_SERVING
        except CallerError:
            return SERVICE_UNKNOWN


def _message(status: int) -> bytes:
    return bytes(HealthCheckResponse(status=status).SerializeToString())
