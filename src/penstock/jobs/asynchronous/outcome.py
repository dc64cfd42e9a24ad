"""What is told of an asynchronous request: the object of a failure, and the notification.

The message has the members that SageMaker's notifications of asynchronous inference have.
"""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from penstock.artifacts.sources.source import shown_uri
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, with_hint
from penstock.jobs.asynchronous.rows import AsyncRequest, Notification

#: A longer answer is not in the notification (SNS takes 256 KB; SageMaker includes 128 KB).
ANSWER_BYTES_MAX: Final = 128_000
#: Message ids follow from the request: a notification that is made twice is the same one.
_IDS: Final = uuid.UUID("5f3b5c0e-9d1f-4f7e-8f5c-0d0a4f1f6f51")


def failure_of(reason: str, error: PenstockError | None, request: AsyncRequest) -> PenstockError:
    """The error of a failed request: what was raised, or what its reason stands for."""
    if reason == "expired":
        return NotNowError(
            "request-expired",
            f"The request was not sent to endpoint {request.endpoint} within"
            f" {request.expires - request.accepted:g} s.",
            hint="Allow more time (RequestTTLSeconds), or raise the endpoint's instance count.",
        )
    if reason == "endpoint-deleted":
        return CallerError(
            "endpoint-deleted", f"Endpoint {request.endpoint} was deleted while the request waited."
        )
    if reason == "invocation-timeout":
        return NotNowError(
            "invocation-timeout",
            f"Endpoint {request.endpoint} did not answer within {request.timeout_s:g} s.",
            hint="Allow more time (InvocationTimeoutSeconds, at most 3600).",
        )
    assert error is not None, "other failures begin with an error"
    return error


def failure_body(reason: str, error: PenstockError, request: AsyncRequest) -> bytes:
    """What the failure object holds: JSON."""
    fields: dict[str, Any] = {
        "InferenceId": request.inference_id,
        "Reason": reason,
        "ErrorCode": error.code,
        "Message": _message(error),
    }
    if isinstance(error, ModelError):
        fields["OriginalStatusCode"] = error.original_status
        fields["OriginalMessage"] = error.original_message
    return orjson.dumps(fields)


def succeeded(
    request: AsyncRequest, number: int, answer: bytes, content_type: str, *, region: str, now: float
) -> Notification | None:
    """The notification of an answer; None: nobody is told."""
    if not request.success_topic:
        return None
    message = _common(request, "Completed", region, now)
    message["responseParameters"] = {
        "contentType": content_type,
        "outputLocation": request.output_uri,
    }
    if request.answer_in_success and len(answer) <= ANSWER_BYTES_MAX:
        message["responseBody"] = _included(answer)
    return _notification(request.success_topic, message, number, now)


def failed(
    request: AsyncRequest,
    number: int,
    error: PenstockError,
    body: bytes,
    *,
    region: str,
    now: float,
) -> Notification | None:
    """The notification of a failure; None: nobody is told."""
    if not request.error_topic:
        return None
    message = _common(request, "Failed", region, now)
    kind = "ModelError" if isinstance(error, ModelError) else "ClientError"
    message["failureReason"] = f"{kind}: {_message(error)}"
    if request.failure_uri:
        message["responseParameters"] = {
            "contentType": "application/json",
            "outputLocation": request.failure_uri,
        }
    if request.answer_in_error and len(body) <= ANSWER_BYTES_MAX:
        message["responseBody"] = _included(body)
    return _notification(request.error_topic, message, number, now)


def _common(request: AsyncRequest, status: str, region: str, now: float) -> dict[str, Any]:
    asked = {"endpointName": request.endpoint, "contentType": request.content_type}
    if request.input_uri:
        asked["inputLocation"] = shown_uri(request.input_uri)
    return {
        "awsRegion": region,
        "eventTime": _time(now),
        "receivedTime": _time(request.accepted),
        "invocationStatus": status,
        "requestParameters": asked,
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }


def _included(answer: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(answer).decode(), "encoding": "BASE64"}


def _notification(topic: str, message: dict[str, Any], number: int, now: float) -> Notification:
    ident = uuid.uuid5(_IDS, f"{message['inferenceId']} {message['receivedTime']} {number}")
    return Notification(str(ident), topic, orjson.dumps(message).decode(), now)


def _message(error: PenstockError) -> str:
    if error.family == "internal":
        return f"Internal failure ({error.code})."
    return with_hint(error.message, error.hint)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
