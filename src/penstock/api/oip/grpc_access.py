"""Authorizes gRPC calls by their heads, before any of their messages is received.

Anybody may ask whether the server lives. All other calls need a bearer token in their metadata, and
an unauthorized call ends at once, however much of its message was sent: grpcio requests no message
of a call whose handler takes a stream and reads none. The endpoint is only in the message, so
`granted` checks it once that has arrived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import grpc

from penstock.api.access import permit
from penstock.api.asked import AccessRequest
from penstock.core.request.grants import (
    INVOKE_ENDPOINT,
    LIST_SERVED_MODELS,
    LOAD_TARGET_MODEL,
    MODEL_METADATA,
    SERVER_METADATA,
    UNKNOWN,
    Grant,
)
from penstock.errors import PenstockError
from penstock.gateway.http.listener_state import Denied
from penstock.wire.aws.errors import AwsError
from penstock.wire.oip_messages import SERVICE

GrantOf = Callable[[str], Grant]

#: Health checks carry no credentials.
_OPEN: Final = frozenset({"ServerLive", "ServerReady"})
#: Each method as an operation of `core/request/grants.py`; methods with a name in their message
#: are checked again by `granted`.
_OPERATIONS: Final = {
    "ServerMetadata": SERVER_METADATA,
    "ModelInfer": INVOKE_ENDPOINT,
    "ModelStreamInfer": INVOKE_ENDPOINT,
    "ModelReady": MODEL_METADATA,
    "ModelMetadata": MODEL_METADATA,
    "ModelConfig": MODEL_METADATA,
    "ModelStatistics": MODEL_METADATA,
    "RepositoryIndex": LIST_SERVED_MODELS,
    "RepositoryModelLoad": LOAD_TARGET_MODEL,
    "RepositoryModelUnload": LOAD_TARGET_MODEL,
}
_WITH_NAME: Final = frozenset({INVOKE_ENDPOINT, LOAD_TARGET_MODEL, MODEL_METADATA})

#: Grant of the call that this task serves; None without authentication.
_grant: ContextVar[Grant | None] = ContextVar("grant", default=None)


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Passes a call to its handler, or replaces the handler by one that refuses."""

    def __init__(
        self, grant_of: GrantOf | None, translate: Callable[[PenstockError], tuple[Any, str]]
    ) -> None:
        self._grant_of = grant_of
        self._translate = translate

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        service, _, method = str(details.method).lstrip("/").rpartition("/")
        if self._grant_of is not None and not (service == SERVICE and method in _OPEN):
            operation = _OPERATIONS.get(method, UNKNOWN) if service == SERVICE else UNKNOWN
            try:
                grant = self._grant_of(_token(details.invocation_metadata))
                permit(
                    grant,
                    AccessRequest(operation, in_body="name" if operation in _WITH_NAME else ""),
                )
            except PenstockError as error:
                return self._refusing(error)
            except AwsError as error:
                return self._refusing(Denied(error.code, error.message))
            _grant.set(grant)
        return await continuation(details)

    def _refusing(self, error: PenstockError) -> Any:
        async def refuse(_requests: Any, context: Any) -> None:
            await context.abort(*self._translate(error))

        return grpc.stream_stream_rpc_method_handler(refuse)


def granted(operation: str, endpoint: str) -> None:
    """Returns if the call of this task is allowed to. Raises Denied."""
    grant = _grant.get()
    if grant is None or not grant.endpoints:
        return
    try:
        permit(grant, AccessRequest(operation, endpoint))
    except AwsError as error:
        raise Denied(error.code, error.message) from error


def _token(metadata: Any) -> str:
    for key, value in metadata or ():
        text = value if isinstance(value, str) else ""
        if key.lower() == "authorization" and text[:7].lower() == "bearer ":
            return text[7:].strip()
    raise Denied(
        "MissingAuthenticationTokenException",
        "The metadata has no authorization: Bearer ….",
        hint="Make a key with penstock keys create.",
    )
