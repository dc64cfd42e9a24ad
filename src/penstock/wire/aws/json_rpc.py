"""The protocols JSON 1.0 and JSON 1.1: one path, the operation in a header, JSON both ways.

The two differ only in their content type, which the model names. Services that used to have Query
(CloudWatch) send that protocol's error codes in an extra header.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from botocore.model import OperationModel, ServiceModel

from penstock.wire.aws import json_values
from penstock.wire.aws.errors import AwsError, fault_of, unknown_operation
from penstock.wire.aws.http import HttpRequest, HttpResponse, ParsedRequest, readable_body
from penstock.wire.aws.models import operation_named

#: Prefix of our own members beside AWS's: plain JSON, which SDKs ignore.
_OURS: Final = "Penstock"


def parse_request(
    model: ServiceModel, http: HttpRequest, *, served: Container[str] | None = None
) -> ParsedRequest:
    """The operation and its parameters.

    Raises:
        AwsError: UnknownOperationException, SerializationException.
    """
    prefix, dot, name = http.headers.get("x-amz-target", "").rpartition(".")
    if not dot or prefix != model.metadata["targetPrefix"]:
        raise unknown_operation("The header X-Amz-Target names no operation of this service.")
    operation = operation_named(model, name, served=served)
    value = json_values.load(readable_body(http))
    shape = operation.input_shape
    return ParsedRequest(
        operation, {} if shape is None else json_values.parse_members(shape, value)
    )


def serialize_response(
    operation: OperationModel, result: dict[str, Any], *, request_id: str
) -> HttpResponse:
    """The answer of a successful operation."""
    shape = operation.output_shape
    ours = {name: value for name, value in result.items() if name.startswith(_OURS)}
    known = {name: value for name, value in result.items() if name not in ours}
    body = {} if shape is None else json_values.serialize_members(shape, known)
    body |= ours
    headers = _headers(operation.service_model, request_id)
    return HttpResponse(200, headers, json_values.dump(body))


def serialize_error(model: ServiceModel, error: AwsError, *, request_id: str) -> HttpResponse:
    """The answer to a request that was refused or failed."""
    fault = fault_of(model, error)
    body: dict[str, Any] = {"__type": fault.name}
    if error.message:
        body[fault.message_key] = json_values.clean_text(error.message)
    for name, value in error.members.items():
        known = fault.shape.members.get(name) if fault.shape is not None else None
        if known is None:
            body[name] = value
        else:
            body[known.serialization.get("name", name)] = json_values.serialize(known, value)
    headers = _headers(model, request_id)
    if "awsQueryCompatible" in model.metadata:
        origin = "Sender" if fault.sender else "Receiver"
        headers.append(("x-amzn-query-error", f"{fault.code};{origin}"))
    return HttpResponse(fault.status, headers, json_values.dump(body))


def _headers(model: ServiceModel, request_id: str) -> list[tuple[str, str]]:
    version = model.metadata["jsonVersion"]
    return [
        ("Content-Type", f"application/x-amz-json-{version}"),
        ("x-amzn-RequestId", request_id),
    ]
