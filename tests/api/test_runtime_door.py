"""InvokeEndpoint: headers both ways, every error as AWS words it, and the unmodified client."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import botocore.exceptions
import orjson
import pytest
from botocore.config import Config
from tests.api.door_site import DoorSite, at_door, door_site
from tests.gateway.gateway_fakes import fail_with, post, run, silent, until

from penstock.api.runtime.errors import RuntimeErrors
from penstock.errors import (
    CallerError,
    InternalError,
    ModelError,
    NotNowError,
    PenstockError,
    from_dict,
    logged,
)
from penstock.wire import frames

ECHO = "/endpoints/echo/invocations"


@at_door()
async def test_what_the_caller_says_reaches_the_model_and_its_answer_the_caller(
    served: DoorSite,
) -> None:
    client = await served.client()
    client.write(
        post(
            ECHO,
            b"rows",
            "content-type: text/csv",
            "ACCEPT: application/json",
            "X-Amzn-SageMaker-Custom-Attributes: trace=1",
            "X-Amzn-SageMaker-Inference-Id: id-7",
            "X-Amzn-SageMaker-Target-Variant: AllTraffic",
            "X-Amzn-SageMaker-Enable-Explanations: x",
        )
    )
    status, headers, body = await client.answer()
    [invoke] = served.instance.invokes
    assert frames.decode_request_meta(invoke.meta) == frames.RequestMeta(
        "text/csv", "application/json", "trace=1", "id-7"
    )
    assert (status, body) == (200, b"rows")
    assert headers["content-type"] == "text/csv"
    assert headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert headers["x-amzn-sagemaker-custom-attributes"] == "trace=1"


@at_door()
async def test_without_a_content_type_the_model_gets_none(served: DoorSite) -> None:
    client = await served.client()
    client.write(post("/endpoints/%65cho/invocations?x=y", b"raw"))
    status, headers, _ = await client.answer()
    assert (status, "content-type" in headers) == (200, False)
    meta = served.instance.invokes[0].meta
    assert frames.decode_request_meta(meta) == frames.RequestMeta()


@pytest.mark.parametrize(
    ("error", "status", "code", "fields"),
    [
        (
            CallerError("bad-shape", "The shape is wrong.", hint="Send 4 numbers."),
            400, "ValidationError", {"Message": "The shape is wrong. Send 4 numbers."},
        ),
        (
            ModelError("bad-type", "unreadable", original_status=415),
            424, "ModelError",
            {
                "OriginalStatusCode": 415,
                "OriginalMessage": "unreadable",
                "LogStreamArn": "arn:aws:logs:us-east-1:123456789012:log-group:"
                "/aws/sagemaker/Endpoints/echo",
                "ErrorCode": "CLIENT_ERROR_FROM_MODEL",
            },
        ),
        (
            ModelError("crash", "boom", original_status=500),
            424, "ModelError",
            {"OriginalStatusCode": 500, "ErrorCode": "INTERNAL_FAILURE_FROM_MODEL"},
        ),
        (NotNowError("queue-full", "Later."), 503, "ServiceUnavailable", {"Message": "Later."}),
        (NotNowError("rate", "No.", status=429), 429, "ThrottlingException", {"Message": "No."}),
        (
            InternalError("bug", "a secret path"),
            500, "InternalFailure", {"Message": "Internal failure (bug)."},
        ),
    ],
)  # fmt: skip
@at_door()
async def test_each_error_has_awss_status_code_and_fields(
    served: DoorSite, error: PenstockError, status: int, code: str, fields: dict[str, Any]
) -> None:
    served.instance.on_invoke = fail_with(error)
    client = await served.client()
    client.write(post(ECHO))
    got, headers, body = await client.answer()
    assert (got, headers["x-amzn-errortype"]) == (status, code)
    assert orjson.loads(body) | fields == orjson.loads(body)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code", "words"),
    [
        (post("/endpoints/no/invocations"), 400, "ValidationError",
         "Endpoint no of account 123456789012 not found."),
        (post("/endpoints/echo/async-invocations"), 404, "UnknownOperationException",
         "no operation"),
        (b"GET /endpoints/echo/invocations HTTP/1.1\r\nHost: localhost\r\n\r\n", 404,
         "UnknownOperationException", "GET"),
        (post(ECHO, b"", "X-Amzn-SageMaker-Target-Variant: Other"), 400, "ValidationError",
         "Variant Other of endpoint echo not found."),
        (post(ECHO, b"", "X-Amzn-SageMaker-Target-Variant: -bad"), 400, "ValidationError",
         "1 validation error detected: Value '-bad' at 'targetVariant'"),
        (post(ECHO, b"", "X-Amzn-SageMaker-Custom-Attributes: " + "a" * 1025), 400,
         "ValidationError", "at 'customAttributes'"),
        (post(ECHO, b"", "X-Amzn-SageMaker-Target-Model: other.tar.gz"), 400, "ValidationError",
         "takes no TargetModel"),
        (post(ECHO, b"", "X-Amzn-SageMaker-Inference-Component: ic"), 400, "ValidationError",
         "Inference Component Name header is not allowed"),
        (post(ECHO, b"", "X-Amzn-SageMaker-Target-Container-Hostname: second"), 400,
         "ValidationError", "Leave TargetContainerHostname out."),
        (post(ECHO, b"", "x-penstock-deadline-ms: soon"), 400, "ValidationError", "soon"),
        (post(ECHO, b"", "Content-Type: " + "a" * 1025), 400, "ValidationError", "contentType"),
        (post(ECHO, b"x" * 1001), 413, "ValidationError", "larger than 1000 bytes"),
    ],
)  # fmt: skip
@at_door(body_bytes_max=1000)
async def test_requests_that_reach_no_model_say_what_is_wrong(
    served: DoorSite, request_bytes: bytes, status: int, code: str, words: str
) -> None:
    client = await served.client()
    client.write(request_bytes)
    got, headers, body = await client.answer()
    assert (got, headers["x-amzn-errortype"]) == (status, code)
    assert words in orjson.loads(body)["Message"]
    assert served.instance.invokes == []


@at_door(outstanding_max=1)
async def test_overload_is_refused_with_the_time_to_come_again_in_milliseconds(
    served: DoorSite,
) -> None:
    served.instance.on_invoke = silent
    first, second = await served.client(), await served.client()
    first.write(post(ECHO))
    await until(lambda: served.instance.invokes)
    second.write(post(ECHO))
    status, headers, _ = await second.answer()
    assert (status, headers["x-amz-retry-after"]) == (503, "100")
    first.close()
    await until(lambda: served.instance.cancelled)
    assert served.dispatcher.in_flight == 0


@at_door()
async def test_a_callers_deadline_is_told_to_the_instance_and_kept(served: DoorSite) -> None:
    served.instance.on_invoke = silent
    client = await served.client()
    client.write(post(ECHO, b"", "X-Penstock-Deadline-Ms: 50"))
    status, headers, body = await client.answer()
    assert (status, headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert "did not answer within the time" in orjson.loads(body)["Message"]
    assert 0 < served.instance.invokes[0].deadline_ms <= 50
    await until(lambda: served.instance.cancelled)


@at_door()
async def test_a_models_own_words_cannot_end_a_header_line(served: DoorSite) -> None:
    meta = frames.encode_reply_meta(frames.ReplyMeta("text/x\r\nSet-Cookie: a", "b\nc"))
    served.instance.on_invoke = lambda connection, ident, _: connection.write(
        frames.encode_reply(ident, meta=meta, body=b"ok")
    )
    client = await served.client()
    client.write(post(ECHO))
    _, headers, _ = await client.answer()
    assert headers["content-type"] == "text/x  Set-Cookie: a"
    assert headers["x-amzn-sagemaker-custom-attributes"] == "b c"
    assert "Set-Cookie" not in headers


def test_an_answer_in_pieces_is_chunked_and_a_broken_one_is_cut() -> None:
    async def main() -> None:
        def stream(connection: Any, ident: int, invoke: frames.Invoke) -> None:
            chunk = frames.encode(frames.CHUNK, ident, b"piece ", flags=frames.FIRST)
            connection.write(chunk + frames.encode(frames.CHUNK, ident, b"piece"))
            if invoke.body != b"break":
                connection.write(frames.encode_reply(ident, kind=frames.END))
            else:
                connection.transport.close()

        async with door_site() as served:
            served.instance.on_invoke = stream
            client = await served.client()
            client.write(post(ECHO))
            _, headers, body = await client.answer()
            assert (headers["transfer-encoding"], body) == ("chunked", b"piece piece")
            client.write(post(ECHO, b"break"))
            assert not (await client.closed()).endswith(b"0\r\n\r\n")

    run(main)


@at_door()
async def test_boto3_invokes_and_raises_the_typed_errors(served: DoorSite) -> None:
    def calls(port: int) -> list[Any]:
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )
        answer = client.invoke_endpoint(
            EndpointName="echo", Body=b"[1]", ContentType="application/json", CustomAttributes="a=b"
        )
        seen: list[Any] = [
            answer["Body"].read(),
            answer["ContentType"],
            answer["InvokedProductionVariant"],
            answer["CustomAttributes"],
        ]
        try:
            client.invoke_endpoint(EndpointName="nobody", Body=b"")
        except client.exceptions.ValidationError as error:
            seen.append(error.response["Error"]["Message"])
        try:
            client.invoke_endpoint(EndpointName="echo", Body=b"", TargetModel="x")
        except botocore.exceptions.ClientError as error:
            seen.append(error.response["ResponseMetadata"]["RequestId"])
        return seen

    seen = await asyncio.to_thread(calls, served.server.port)
    assert seen[:5] == [
        b"[1]",
        "application/json",
        "AllTraffic",
        "a=b",
        "Endpoint nobody of account 123456789012 not found.",
    ]
    assert seen[5] == "00000000-0000-4000-8000-000000000003"


@at_door()
async def test_stopping_refuses_what_is_new_and_answers_what_is_in_flight(served: DoorSite) -> None:
    kept: list[tuple[Any, int]] = []
    served.instance.on_invoke = lambda connection, ident, _: kept.append((connection, ident))
    busy, late = await served.client(), await served.client()
    busy.write(post(ECHO))
    await until(lambda: kept)
    stopping = asyncio.ensure_future(served.server.stop())
    await asyncio.sleep(0)
    late.write(post(ECHO))
    assert (await late.answer())[0] == 503
    connection, ident = kept[0]
    connection.write(frames.encode_reply(ident, body=b"done"))
    assert (await busy.answer())[2] == b"done"
    assert await stopping is True


def test_a_text_points_to_the_log_only_when_the_log_has_its_line() -> None:
    errors, lines = RuntimeErrors("123456789012", "us-east-1"), list[str]()
    error = ModelError("crash", "boom\nat line 1", hint="Mend it.")
    _, body = errors.render(error, "shop")
    assert "log of endpoint" not in orjson.loads(body)["Message"]
    for _ in range(2):  # a batch of requests shares its error, and the line
        assert logged(error, lines.append) is error
    assert lines == ["error[crash]: boom at line 1. Mend it."]
    travelled = from_dict(orjson.loads(orjson.dumps(error.to_dict())))
    _, body = errors.render(travelled, "shop")
    assert orjson.loads(body)["Message"].endswith(
        "See the log of endpoint shop for more: penstock logs shop"
    )
