"""An error in AWS's own words, on its way to the client.

`penstock.errors` says what went wrong inside. A front door maps that tree to one of these, and a
protocol module turns it into bytes. Codes are AWS's (`ValidationException`), not ours, because
clients match on them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:  # signatures and frames must not wait for botocore to be imported
    from botocore.model import ServiceModel

#: Code for a valid key without the right to do this.
ACCESS_DENIED: Final = "AccessDeniedException"
#: Most cached models: each test suite makes models of its own; a server uses four.
_MODELS_MAX = 64


class AwsError(Exception):
    """An error for the client.

    Attributes:
        code: the error shape's name, or its `error.code` (CloudWatch has both).
        message: for people; clients search for some of them, see the table of error texts.
        status: HTTP status; None takes the model's, else 400, or 500 if the sender isn't at fault.
        sender: whether the client is at fault; None takes the model's, else what the status says.
        members: further members of the error shape; those the model lacks are sent as they are.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        sender: bool | None = None,
        members: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.status = status
        self.sender = sender
        self.members = {} if members is None else members

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def unreadable(message: str) -> AwsError:
    """The error for bytes that do not fit their protocol and shape."""
    return AwsError("SerializationException", message, status=400)


def unknown_operation(message: str, *, status: int = 400) -> AwsError:
    """The error for a request whose operation is not served."""
    return AwsError("UnknownOperationException", message, status=status)


class AwsFault(NamedTuple):
    """An `AwsError` with everything that its model adds."""

    shape: Any  #: the error's StructureShape; None where the model doesn't know the code
    name: str  #: its name in JSON protocols
    code: str  #: its code in Query, and in query-compatible services beside the name
    status: int
    sender: bool
    message_key: str  #: "message" or "Message", as the shape spells it


def fault_of(model: ServiceModel, error: AwsError) -> AwsFault:
    """Adds what the error left to the model."""
    shape = _error_shapes(model).get(error.code)
    modelled: dict[str, Any] = shape.metadata.get("error", {}) if shape is not None else {}
    status = (
        error.status or modelled.get("httpStatusCode") or (500 if error.sender is False else 400)
    )
    sender = error.sender
    if sender is None:
        sender = bool(modelled.get("senderFault", status < 500))
    members = shape.members if shape is not None else {}
    return AwsFault(
        shape=shape,
        name=shape.name if shape is not None else error.code,
        code=shape.error_code if shape is not None else error.code,
        status=int(status),
        sender=sender,
        message_key="Message" if "Message" in members else "message",
    )


@functools.lru_cache(maxsize=_MODELS_MAX)
def _error_shapes(model: ServiceModel) -> dict[str, Any]:
    """Error shapes by name and also by `error.code`, unless a name is the same."""
    described: dict[str, Any] = model._service_description.get("shapes", {})
    named = {
        name: model.shape_for(name) for name, shape in described.items() if shape.get("exception")
    }
    return {shape.error_code: shape for shape in named.values()} | named
