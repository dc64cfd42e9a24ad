"""gRPC's status codes, and the one table from Penstock's errors to them.

Source: grpc/grpc, doc/statuscodes.md.
"""

from __future__ import annotations

from enum import IntEnum

from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, with_hint
from penstock.gateway.http.listener_state import Denied
from penstock.runtimes.triton_errors import BY_CODE
from penstock.wire.aws.errors import ACCESS_DENIED


class GrpcStatus(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def translate(error: PenstockError) -> tuple[GrpcStatus, str]:
    """The status of an error, and its message."""
    code = GrpcStatus
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
        return _of_caller(error), (
            f"Request for unknown model: {message}"
            if error.code == "endpoint-not-found"
            else message
        )
    if isinstance(error, NotNowError):
        if error.code in ("deadline-passed", "no-capacity-in-time"):
            return code.DEADLINE_EXCEEDED, message
        return (code.RESOURCE_EXHAUSTED if error.status == 429 else code.UNAVAILABLE), message
    return code.INTERNAL, f"internal error ({error.code})"


def _of_caller(error: CallerError) -> GrpcStatus:
    code = GrpcStatus
    if error.code == "endpoint-not-found":
        return code.NOT_FOUND
    if error.code == "not-served":
        return code.UNIMPLEMENTED
    if error.code in ("message-too-slow", "stream-unread"):
        return code.DEADLINE_EXCEEDED
    if error.status == 501:
        return code.UNIMPLEMENTED
    if error.status == 403:
        return code.PERMISSION_DENIED
    return code.NOT_FOUND if error.status == 404 else code.INVALID_ARGUMENT
