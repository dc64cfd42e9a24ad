"""Every path that is not hot, as one ASGI application: AWS's POST /, admin, metrics, ping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from penstock.api.admin.answers import error_answer
from penstock.api.admin.app import AdminServices, routes
from penstock.api.admin.traffic import TrafficFeed
from penstock.api.aws import AwsFrontDoor
from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.http.asgi import head_of
from penstock.gateway.http.call import Call
from penstock.metrics.page.pages import MetricPages
from penstock.wire.aws.http import HttpRequest


def build_app(
    aws: AwsFrontDoor,
    admin: AdminServices,
    metrics: MetricPages,
    traffic: TrafficFeed | None = None,
) -> Any:
    """The application. The connection answers with the scope's `penstock.request_id`.

    `traffic`: what this server can take, for orchestrators.
    """

    async def get_root(request: Request) -> Response:
        if _asks_s3(request):
            return _no_s3()
        return PlainTextResponse(
            "Penstock serves here: the SageMaker, SageMaker Runtime, Application Auto Scaling and"
            " CloudWatch APIs, the Open Inference Protocol below /v2 and OpenAI's API below /v1."
            " Metrics are at /metrics.\n"
        )

    async def get_metrics(request: Request) -> Response:
        process = request.query_params.get("process", "")
        try:
            body, content_type = await metrics.render(process, request.headers.get("accept", ""))
        except PenstockError as error:
            return JSONResponse(error.to_dict(), status_code=error.status)
        return Response(body, headers={"content-type": content_type})

    async def ping(_request: Request) -> Response:
        return PlainTextResponse("")

    return Starlette(
        routes=[
            Route("/", aws_root(aws), methods=["POST"]),
            Route("/", get_root, methods=["GET"]),
            Route("/ping", ping, methods=["GET"]),
            Route("/metrics", get_metrics, methods=["GET"]),
            Mount("/admin", routes=routes(admin)),
            *(traffic.routes() if traffic is not None else ()),
        ],
        exception_handlers={
            404: _not_found,
            405: _wrong_method,
            PenstockError: _told,
            Exception: failed,
        },
    )


def aws_root(aws: AwsFrontDoor) -> Callable[[Request], Awaitable[Response]]:
    """The page behind POST /."""

    async def post_root(request: Request) -> Response:
        http = HttpRequest.received(
            request.method,
            request.scope["raw_path"],
            request.scope["query_string"],
            request.scope["headers"],
            await request.body(),
        )
        answer = await aws.handle(http, request.scope["penstock.request_id"])
        response = Response(answer.body, status_code=answer.status)
        # The connection itself adds request id, date and length.
        response.raw_headers = [
            (name, value) for name, value in answer.raw_headers if name != b"x-amzn-requestid"
        ]
        response.raw_headers.append((b"content-length", b"%d" % len(answer.body)))
        return response

    return post_root


async def _told(_request: Request, error: Exception) -> Response:
    """Answers an error that a page did not expect, such as an unreachable database, as JSON."""
    assert isinstance(error, PenstockError)
    return error_answer(error)


async def failed(_request: Request, _error: Exception) -> Response:
    """Answers a bug of ours as JSON. The server that runs the application logs it."""
    return error_answer(InternalError("internal", "The request failed inside Penstock."))


def _asks_s3(request: Request) -> bool:
    """Whether an S3 client signed it: S3 requests arrive here where only AWS_ENDPOINT_URL is
    set."""
    return "/s3/aws4_request" in request.headers.get("authorization", "")


def _no_s3() -> Response:
    """An error in S3's form: its clients take any other for a server fault or an empty bucket."""
    return Response(
        "<Error><Code>InvalidRequest</Code><Message>Penstock is no object store. Set"
        " AWS_ENDPOINT_URL_S3 to the address of yours.</Message></Error>",
        status_code=400,
        media_type="application/xml",
    )


async def _not_found(request: Request, _error: Exception) -> Response:
    if _asks_s3(request):
        return _no_s3()
    return error_answer(
        CallerError(
            "not-found",
            f"Nothing is served at {request.method} {request.url.path}.",
            hint="Endpoints are called by POST /endpoints/NAME/invocations.",
            status=404,
        )
    )


async def _wrong_method(request: Request, error: Exception) -> Response:
    if _asks_s3(request):
        return _no_s3()
    allowed = (getattr(error, "headers", None) or {}).get("Allow", "")
    message = f"{request.method} is not served at {request.url.path}."
    hint = f"Served there: {allowed}."
    error = CallerError("method-not-allowed", message, hint=hint, status=405)
    return error_answer(error, {"allow": allowed})


def build_refusal(aws: AwsFrontDoor) -> Callable[[Call, PenstockError], bool]:
    """Refuses a request before the application sees it; AWS's clients get their protocol's form."""

    def refuse(call: Call, error: PenstockError) -> bool:
        if call.method != b"POST" or call.path != b"/":
            return False
        http = HttpRequest.received("POST", call.path, call.query, call.headers)
        answer = aws.refuse(http, error, call.request_id)
        call.answer(head_of(answer.status, answer.raw_headers), answer.body)
        return True

    return refuse
