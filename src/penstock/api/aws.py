"""POST / of the AWS services: finds service and protocol, parses, checks, calls, answers.

One path serves the SageMaker control plane and Application Auto Scaling (JSON 1.1) and CloudWatch
(JSON 1.0 and Query); the header X-Amz-Target or the form's `Action` decides. The operations
themselves are plain functions from parameters to a result, in folders of their own. Errors get the
protocol's form here.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from botocore.model import OperationModel, ServiceModel

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.gateway.http.listener_state import Denied
from penstock.wire.aws import json_rpc, query, validate
from penstock.wire.aws.errors import AwsError, unknown_operation
from penstock.wire.aws.http import HttpRequest, HttpResponse
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER, service_model
from penstock.wire.aws.sigv4 import parse_authorization

log = logging.getLogger(__name__)

#: Larger bodies are parsed on a thread, so that the loop is not blocked.
_READ_AT_ONCE_BYTES: Final = 32 << 10
#: Operations whose answers may have megabytes; their answers are written on a thread, too.
_LARGE_ANSWERS: Final = frozenset({"GetMetricData"})

#: Of a request or an answer, by the names in the service model.
Members = dict[str, Any]
#: (the context of the call, the request's members) -> the answer's; raises AwsError
Operation = Callable[[Any, Members], Awaitable[Members]]

#: Prefixes of X-Amz-Target. Forms are always CloudWatch's: no other service uses Query.
TARGETS = {
    "SageMaker": SAGEMAKER,
    "AnyScaleFrontendService": AUTOSCALING,
    "GraniteServiceVersion20100801": CLOUDWATCH,
}

#: CloudWatch Logs is not served, since there are no log groups. SDKs that follow an endpoint's log
#: while they wait accept "no such log group", and take any other answer as a failure.
LOGS_TARGET = "Logs_"

#: Each service's error code for parameters that break a constraint.
VALIDATION_CODES = {CLOUDWATCH: "ValidationError"}

#: Names in the credential scope, which differ from the clients' names.
SCOPES = {
    SAGEMAKER: "sagemaker",
    AUTOSCALING: "application-autoscaling",
    CLOUDWATCH: "monitoring",
}


@dataclass(frozen=True, slots=True)
class AwsService:
    """One served service: its operations by name, and the context of its calls."""

    name: str  #: botocore's name
    operations: Mapping[str, Operation]
    context: Callable[[str], Any]  #: region -> the first argument of an operation
    #: (the context, id of the request's key or "") -> the context to use
    signed_by: Callable[[Any, str], Any] = lambda context, access_key: context


class AwsFrontDoor:
    """Answers every POST / that names an AWS operation."""

    def __init__(
        self,
        services: Sequence[AwsService],
        *,
        region_default: str,
        key_of: Callable[[HttpRequest], str] = lambda http: signed_with(http)[1],
        places: NamedPlaces | None = None,
    ) -> None:
        """`key_of`: id of the key that a request carries; empty = none. `places`: refuses URIs of
        the server's own places, in any member."""
        self._key_of = key_of
        self._places = places
        self._services = {service.name: service for service in services}
        self._region_default = region_default
        #: one at a time, because the parsed tree takes many times the body's size
        self._large = asyncio.Semaphore(1)

    async def handle(self, http: HttpRequest, request_id: str, *, owner: str = "") -> HttpResponse:
        """Always returns an answer: errors are reported in the caller's protocol.

        `owner`: for an internal call, id of the key that it is made for.
        """
        name, protocol = dispatch(http)
        service = self._services.get(name)
        if service is None:
            model, protocol = service_model(SAGEMAKER), json_rpc
            return _error(protocol, model, _not_served(http), request_id)
        model = service_model(name)
        operation: OperationModel | None = None
        try:
            code = VALIDATION_CODES.get(name, "ValidationException")
            read = functools.partial(_read, protocol, model, http, service.operations, code)
            if len(http.body) <= _READ_AT_ONCE_BYTES and "content-encoding" not in http.headers:
                found, params = read()
            else:
                async with self._large:
                    found, params = await asyncio.to_thread(read)
            operation = found
            if self._places is not None and name == SAGEMAKER:  # other services name no places
                await self._places.check(params)
            region, _ = signed_with(http)
            context = service.context(region or self._region_default)
            context = service.signed_by(context, owner or self._key_of(http))
            result = await service.operations[found.name](context, params)
            write = functools.partial(
                protocol.serialize_response, found, result, request_id=request_id
            )
            large = found.name in _LARGE_ANSWERS
            return await asyncio.to_thread(write) if large else write()
        except AwsError as error:
            return _error(protocol, model, error, request_id)
        except PenstockError as error:
            return _error(protocol, model, as_aws_error(error), request_id)
        except Exception:
            log.exception("request %s: %s failed", request_id, operation and operation.name)
            failure = AwsError("InternalFailure", "An internal error occurred.", status=500)
            return _error(protocol, model, failure, request_id)

    def refuse(self, http: HttpRequest, error: PenstockError, request_id: str) -> HttpResponse:
        """The answer to a POST / that never reached `handle`: unauthorized, too large, or too late.

        Its head shows the protocol; its body may be unread.
        """
        name, protocol = dispatch(http)
        shown = as_aws_error(error)
        shown.status = error.status
        return _error(protocol, service_model(name or SAGEMAKER), shown, request_id)


def token_of(params: Members, place: Any, *, free: Sequence[str] = ()) -> str:
    """A NextToken with which the request continues at `place`. It belongs to this request alone: a
    later one may differ only in the members in `free`."""
    return base64.urlsafe_b64encode(orjson.dumps([_digest(params, free), place])).decode()


def place_of(
    params: Members, *, code: str, fits: Callable[[Any], bool], free: Sequence[str] = ()
) -> Any:
    """The place to continue from; None on the first page.

    A token is not a secret, so `fits` says whether its content is a valid place. Raises AwsError
    (`code`) for a token that is not ours, or belongs to another request.
    """
    token = params.get("NextToken")
    if not token:
        return None
    try:
        digest, place = orjson.loads(base64.urlsafe_b64decode(token.encode("ascii")))
    except (ValueError, TypeError):
        digest, place = "", None
    if digest != _digest(params, free) or not fits(place):
        raise AwsError(code, "The NextToken is invalid, or belongs to another request.")
    return place


def _digest(params: Members, free: Sequence[str]) -> str:
    same = {name: value for name, value in params.items() if name not in ("NextToken", *free)}
    data = orjson.dumps(same, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(data, digest_size=9).hexdigest()


def _read(
    protocol: Any, model: ServiceModel, http: HttpRequest, served: Container[str], code: str
) -> tuple[OperationModel, dict[str, Any]]:
    """The operation and its parameters, checked. Raises AwsError."""
    operation, params = protocol.parse_request(model, http, served=served)
    validate.validate(operation.input_shape, params, code=code)
    return operation, params


def dispatch(http: HttpRequest) -> tuple[str, Any]:
    """botocore's name of the requested service ("" if none), and its protocol's module."""
    target = http.headers.get("x-amz-target", "").partition(".")[0]
    if target:
        return TARGETS.get(target, ""), json_rpc
    if http.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return CLOUDWATCH, query
    return "", json_rpc


def _not_served(http: HttpRequest) -> AwsError:
    if http.headers.get("x-amz-target", "").startswith(LOGS_TARGET):
        return AwsError(
            "ResourceNotFoundException",
            "The specified log group does not exist. What endpoints write is shown by "
            "'penstock logs NAME'.",
        )
    return unknown_operation("The request names no service that is served here.")


def signed_with(http: HttpRequest) -> tuple[str, str]:
    """(region, access key) of the credential scope; empty for unsigned requests."""
    try:
        signed = parse_authorization(http.headers)
    except AwsError:
        return "", ""
    return signed.region, signed.access_key


def as_aws_error(error: PenstockError) -> AwsError:
    """One of our errors in the terms of the JSON and Query services."""
    if isinstance(error, Denied):
        return AwsError(error.code, error.message, status=error.status)
    message = f"{error.message.rstrip('.')}. {error.hint}".rstrip()
    if isinstance(error, CallerError):
        return AwsError("ValidationException", message, status=400)
    if isinstance(error, NotNowError):
        return AwsError("ServiceUnavailable", message, status=503)
    return AwsError("InternalFailure", error.code, status=500)


def _error(protocol: Any, model: ServiceModel, error: AwsError, request_id: str) -> HttpResponse:
    return protocol.serialize_error(model, error, request_id=request_id)  # type: ignore[no-any-return]
