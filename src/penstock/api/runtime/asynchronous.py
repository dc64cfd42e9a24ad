"""InvokeEndpointAsync: a request whose answer becomes an object later.

202 is sent once the request is stored: it will be processed whatever dies meanwhile. The place of
the answer follows from the endpoint's configuration and two fields of the caller's, which can't
lead anywhere else. Besides S3, the operator decides where inputs may lie, because this server reads
them with its own rights.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import unquote

from penstock.api.runtime.errors import RuntimeErrors
from penstock.api.runtime.request import INFERENCE_COMPONENT, TARGET_MODEL, target_model
from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.core.deployment.deployment import AsyncSpec, DeploymentSpec
from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.dispatch.refusals import (
    component_not_allowed,
    endpoint_not_found,
    target_model_refused,
)
from penstock.gateway.http.asgi import head_of
from penstock.gateway.http.call import Call
from penstock.jobs.asynchronous.rows import AsyncRequest
from penstock.wire.aws import rest_json
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import RUNTIME, service_model
from penstock.wire.aws.validate import validate
from penstock.wire.frames import RequestMeta, encode_request_meta

_log = logging.getLogger(__name__)

OPERATION: Final = "InvokeEndpointAsync"
#: s until a request expires: SageMaker's default.
TTL_S: Final = 21_600
TIMEOUT_S: Final = 900
_S3: Final = "s3://"


class Accepts(Protocol):
    """The part that stores asynchronous requests."""

    async def accept(self, request: AsyncRequest, body: bytes) -> None:
        """Returns once the request is stored. Raises PenstockError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRule:
    """Where inputs that callers name may lie."""

    anywhere: bool = False  #: callers may read this server's files in any case
    prefixes: tuple[str, ...] = ()  #: URI prefixes, besides s3://

    def check(self, uri: str) -> None:
        """Raises CallerError (`input-not-allowed`)."""
        below = any(uri.startswith(one.rstrip("/") + "/") for one in self.prefixes)
        # A path is decoded before it is opened, so the decoded form is checked.
        climbs = ".." in unquote(uri).split("/")
        if not (self.anywhere or uri[:5].lower() == _S3 or below) or climbs:
            raise CallerError(
                "input-not-allowed",
                "InputLocation must be an s3:// URI, or lie below what this server's operator"
                " allows.",
                hint="The operator's setting is control.async_inputs.",
            )


class AsyncDoor:
    """The part of the runtime's door that takes asynchronous requests."""

    def __init__(
        self,
        accepts: Accepts,
        shown: Callable[[str], DeploymentSpec | None],
        clock: Clock,
        config: ServerConfig,
        places: NamedPlaces,
    ) -> None:
        """`shown`: the deployment of an endpoint; None for an unknown name."""
        self._accepts = accepts
        self._places = places
        self._shown = shown
        self._clock = clock
        self._inputs = InputRule(
            anywhere=not config.listen.auth, prefixes=config.control.async_inputs
        )
        self._errors = RuntimeErrors(config.control.account_id, config.control.region)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, call: Call, endpoint: str) -> None:
        """Takes a request, and answers it once it is stored or refused."""
        try:
            params = self._params(call)
            request = self._request(params, endpoint, _target_model(call), _names_component(call))
        except PenstockError as error:
            self._answer_error(call, error, endpoint)
            return
        self._begin(self._accept(call, request, params.get("Body", b"")))

    def _answer_error(self, call: Call, error: PenstockError, endpoint: str) -> None:
        call.answer(*self._errors.render(error, endpoint))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, call: Call, request: AsyncRequest, body: bytes) -> None:
        try:
            await self._places.check([request.input_uri, request.output_uri, request.failure_uri])
            await self._accepts.accept(request, body)
        except PenstockError as error:
            self._answer_error(call, error, request.endpoint)
            return
        except Exception:
            _log.exception("an asynchronous request could not be accepted")
            failed = InternalError("internal", "The request could not be accepted.")
            self._answer_error(call, failed, request.endpoint)
            return
        told = {
            "InferenceId": request.inference_id,
            "OutputLocation": request.output_uri,
            "FailureLocation": request.failure_uri or None,
        }
        operation = service_model(RUNTIME).operation_model(OPERATION)
        response = rest_json.serialize_response(operation, told, request_id="")
        call.answer(head_of(response.status, response.raw_headers), response.body)

    def _params(self, call: Call) -> dict[str, Any]:
        """The members of the service model's shape. Raises PenstockError."""
        http = HttpRequest.received(
            call.method.decode("latin-1"), call.path, b"", call.headers, call.body
        )
        try:
            parsed = rest_json.parse_request(service_model(RUNTIME), http, served=(OPERATION,))
            validate(parsed.operation.input_shape, parsed.params, code="ValidationError")
        except AwsError as error:
            raise CallerError("request-invalid", error.message, status=error.status) from error
        return parsed.params

    def _request(
        self, params: dict[str, Any], endpoint: str, model: str | None, names_component: bool
    ) -> AsyncRequest:
        deployment = self._shown(endpoint)
        # names are case-sensitive, as in InvokeEndpoint
        if deployment is None or deployment.endpoint != endpoint:
            raise endpoint_not_found(endpoint)
        spec = deployment.asynchronous
        if spec is None:
            raise not_asynchronous(endpoint)
        if names_component:
            raise component_not_allowed()
        if (model is not None) != _is_multi_model(deployment):
            raise target_model_refused(endpoint, named=model is not None)
        uri, body = params.get("InputLocation", ""), params.get("Body", b"")
        if bool(uri) == bool(body):
            raise CallerError(
                "input-ambiguous",
                "Give either InputLocation or Body, and not both."
                if uri
                else "The request has no input: give InputLocation or Body.",
            )
        if uri:
            self._inputs.check(uri)
        ident = str(uuid.uuid4())
        inference_id = params.get("InferenceId") or ident
        now = self._clock.wall()
        output, failure = locations(spec, ident, params)
        content_type = params.get("ContentType")
        meta = RequestMeta(
            content_type,
            params.get("Accept"),
            params.get("CustomAttributes"),
            inference_id,
            target_model=model,
        )
        return AsyncRequest(
            endpoint=endpoint,
            inference_id=inference_id,
            accepted=now,
            expires=now + params.get("RequestTTLSeconds", TTL_S),
            timeout_s=float(params.get("InvocationTimeoutSeconds", TIMEOUT_S)),
            input_uri=uri,
            body_bytes=len(body),
            meta=encode_request_meta(meta),
            content_type=content_type or "",
            output_uri=output,
            failure_uri=failure,
            success_topic=spec.success_topic,
            error_topic=spec.error_topic,
            answer_in_success=spec.answer_in_success,
            answer_in_error=spec.answer_in_error,
        )


def locations(spec: AsyncSpec, ident: str, params: dict[str, Any]) -> tuple[str, str]:
    """URIs of the answer and of a failure; empty: failures leave no object.

    Raises CallerError (`output-path-invalid`) for fields that would lead out of the prefix.
    """
    extension = params.get("S3OutputPathExtension", "")
    filename = params.get("Filename", "")
    parts = extension.split("/") if extension else []
    if any(part in ("", ".", "..") for part in parts[:-1]) or parts[-1:] in ([".."], ["."]):
        raise CallerError(
            "output-path-invalid",
            "S3OutputPathExtension must be names with a slash between them, without '.' and '..'.",
        )
    folder = "".join(f"{part}/" for part in parts if part)
    output = f"{spec.output_uri.rstrip('/')}/{folder}{filename or f'{ident}.out'}"
    failure = ""
    if spec.failure_uri:
        name = filename.rpartition(".")[0] or filename or ident
        failure = f"{spec.failure_uri.rstrip('/')}/{folder}{name}-error.out"
    return output, failure


def _target_model(call: Call) -> str | None:
    """TargetModel from InvokeEndpoint's header: AWS's asynchronous operation has no such member."""
    named = [value for name, value in call.headers if name.lower() == TARGET_MODEL]
    return target_model({TARGET_MODEL: named[0]}) if named else None


def _names_component(call: Call) -> bool:
    """Whether InvokeEndpoint's header InferenceComponentName is set: AWS's operation has none, and
    no configuration with AsyncInferenceConfig takes components."""
    return any(name.lower() == INFERENCE_COMPONENT for name, _ in call.headers)


def _is_multi_model(deployment: DeploymentSpec) -> bool:
    return any(
        variant.model is not None and variant.model.multi_model for variant in deployment.variants
    )


def not_asynchronous(endpoint: str) -> PenstockError:
    return CallerError(
        "endpoint-not-asynchronous",
        f"Endpoint {endpoint} has no AsyncInferenceConfig: it takes no asynchronous requests.",
        hint="Call it with InvokeEndpoint, or create it with a configuration that has one.",
    )
