"""Which gRPC calls may pass, by their heads.

Anybody may ask whether the server lives. All other calls need a bearer token in their metadata, and
an unauthorized call ends before any of its message is kept. The endpoint is only in the message, so
a call's `granted` checks it once that has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.api.access import AccessRequest, permit
from penstock.core.request.grants import (
    CHANGE_LOG,
    INVOKE_ENDPOINT,
    LIST_SERVED_MODELS,
    LOAD_TARGET_MODEL,
    MODEL_METADATA,
    SERVER_METADATA,
    SHARE_MEMORY,
    UNKNOWN,
    Grant,
)
from penstock.gateway.http.listener_state import Denied
from penstock.wire import grpc_health, grpc_reflection
from penstock.wire.aws.errors import AwsError
from penstock.wire.http2.hpack import Field
from penstock.wire.oip_messages import SERVICE

#: The grant of a bearer token; raises for an unauthorized one.
GrantOf = Callable[[str], Grant]

#: Health checks carry no credentials.
_OPEN: Final = frozenset({"ServerLive", "ServerReady"})
#: Each method as an operation of `core/request/grants.py`; methods with a name in their message
#: are checked again by `check_endpoint`.
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
    "SystemSharedMemoryStatus": LIST_SERVED_MODELS,
    "SystemSharedMemoryRegister": SHARE_MEMORY,
    "SystemSharedMemoryUnregister": SHARE_MEMORY,
    "CudaSharedMemoryStatus": LIST_SERVED_MODELS,
    "CudaSharedMemoryRegister": SHARE_MEMORY,
    "CudaSharedMemoryUnregister": SHARE_MEMORY,
    "LogSettings": CHANGE_LOG,
    "TraceSetting": LIST_SERVED_MODELS,
}
_REFLECTION: Final = frozenset(version.service for version in grpc_reflection.VERSIONS)
_WITH_NAME: Final = frozenset({INVOKE_ENDPOINT, LOAD_TARGET_MODEL, MODEL_METADATA})


def authorized(grant_of: GrantOf, path: bytes, fields: Sequence[Field]) -> Grant | None:
    """The grant of a call; None where it needs none. Raises Denied and what `grant_of` raises."""
    service, _, method = path.decode("latin-1").lstrip("/").rpartition("/")
    if _is_open(service, method, fields):
        return None
    operation = _operation(service, method)
    try:
        grant = grant_of(_token(fields))
        in_body = "name" if operation in _WITH_NAME else ""
        permit(grant, AccessRequest(operation, in_body=in_body))
    except AwsError as error:
        raise Denied(error.code, error.message) from error
    return grant


def check_endpoint(grant: Grant | None, operation: str, endpoint: str) -> None:
    """Returns if the call with this grant is allowed to. Raises Denied."""
    if grant is None or not grant.endpoints:
        return
    try:
        permit(grant, AccessRequest(operation, endpoint))
    except AwsError as error:
        raise Denied(error.code, error.message) from error


def _is_open(service: str, method: str, fields: Sequence[Field]) -> bool:
    """Whether the call needs no credentials. A health check may have some, to see models."""
    if service == grpc_health.SERVICE:
        return all(name != b"authorization" for name, _ in fields)
    return service == SERVICE and method in _OPEN


def _operation(service: str, method: str) -> str:
    if service == grpc_health.SERVICE:
        return MODEL_METADATA
    if service in _REFLECTION:
        return SERVER_METADATA
    return _OPERATIONS.get(method, UNKNOWN) if service == SERVICE else UNKNOWN


def _token(fields: Sequence[Field]) -> str:
    for name, value in fields:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
    raise Denied(
        "MissingAuthenticationTokenException",
        "The metadata has no authorization: Bearer ….",
        hint="Make a key with penstock keys create.",
    )
