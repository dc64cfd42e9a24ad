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
from typing import Final

from penstock.api.model_names import FindsServed, endpoint_of, parse
from penstock.api.oip.grpc_calls import GrpcCall, UnaryCall
from penstock.api.oip.grpc_stream_calls import StreamCall
from penstock.api.oip.models import OipModels
from penstock.core.request.grants import MODEL_METADATA
from penstock.errors import CallerError, NotNowError
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


class GrpcHealth:
    """The methods of the service."""

    def __init__(
        self,
        models: OipModels,
        *,
        authenticates: bool,
        served: FindsServed,
    ) -> None:
        self._served = served
        self._models = models
        self._authenticates = authenticates
        self._watches: Counter[bool] = Counter()  #: by whether strangers have them

    def check(self, call: UnaryCall, message: bytes) -> bytes:
        """Raises PenstockError."""
        service = self._service(call, message)
        status = self._status(service)
        if status == SERVICE_UNKNOWN:
            raise CallerError(
                "model-not-found", f"There is no service or model {service!r}.", status=404
            )
        return _message(status)

    def tells_server(self, call: GrpcCall) -> bool:
        """Whether the call gets the server's state, so that its message is not received."""
        return self._authenticates and call.grant is None

    async def watch(self, call: StreamCall) -> None:
        """Ends when the client goes away, or the server stops."""
        stranger = self._authenticates and call.grant is None
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
            message = b"" if stranger else await call.first()
            await self._tell(self._service(call, message), call)
        finally:
            self._watches[stranger] -= 1

    async def _tell(self, service: str, call: StreamCall) -> None:
        told = None
        while True:
            serving = self._models.server_ready()
            status = self._status(service)
            if status != told:
                await call.write(_message(status))
                told = status
            if not serving:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _service(self, call: GrpcCall, message: bytes) -> str:
        if self._authenticates and call.grant is None:
            return ""
        try:
            service = str(HealthCheckRequest.FromString(message).service)
        except Exception as cause:
            raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
        if service not in _SERVER:
            call.granted(MODEL_METADATA, endpoint_of(service, self._served))
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
