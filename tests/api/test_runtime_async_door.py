"""InvokeEndpointAsync: headers both ways, byte for byte, and what is refused before it is kept.

Whoever keeps the requests is a list here; tests/jobs has the real record.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import boto3
import orjson
import pytest
from botocore.config import Config
from tests.kit.doors import door_site
from tests.kit.gateway import run
from tests.kit.http_clients import post

from penstock.api.runtime.asynchronous import AsyncDoor, InputRule, locations
from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import ManualClock
from penstock.config import ControlConfig, ListenConfig, ServerConfig
from penstock.core.deployment.deployment import (
    AsyncSpec,
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    VariantRoutes,
    VariantSpec,
)
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.jobs.asynchronous.rows import AsyncRequest
from penstock.wire import frames
from penstock.wire.aws.models import RUNTIME, service_model

pytestmark = pytest.mark.loop(by=run)

PATH = "/endpoints/later/async-invocations"
SPEC = AsyncSpec(
    output_uri="s3://bucket/out/", failure_uri="s3://bucket/bad", success_topic="arn:ok"
)
ANYONE = ServerConfig()
#: No folder is the server's own.
NO_PLACES = NamedPlaces(ArtifactSettings())
WITH_KEYS = ServerConfig(
    listen=ListenConfig(auth=True), control=ControlConfig(async_inputs=("file:///data/in",))
)


class AsyncRecord:
    """Stands where the queue is: keeps what it is given, or refuses it."""

    def __init__(self) -> None:
        self.kept: list[tuple[AsyncRequest, bytes]] = []
        self.refuses: PenstockError | None = None

    async def accept(self, request: AsyncRequest, body: bytes) -> None:
        await asyncio.sleep(0)
        if self.refuses is not None:
            raise self.refuses
        self.kept.append((request, body))


def deployment(name: str) -> DeploymentSpec | None:
    if name not in ("later", "at-once"):
        return None
    return DeploymentSpec(
        endpoint=name,
        generation=1,
        config_name="c",
        asynchronous=SPEC if name == "later" else None,
        variants=(
            VariantSpec(
                name="all",
                model=ModelSource(model_name="m"),
                instance_type="ml.local.small",
                instance_count=1,
            ),
        ),
    )


Shown = Callable[[str], DeploymentSpec | None]


def door(
    record: AsyncRecord, config: ServerConfig = ANYONE, shown: Shown = deployment
) -> AsyncDoor:
    return AsyncDoor(record, shown, ManualClock(wall_s=1000.0), config, NO_PLACES)


def answer(
    data: bytes, record: AsyncRecord, config: ServerConfig = ANYONE, shown: Shown = deployment
) -> tuple[int, Any, bytes]:
    async def main() -> tuple[int, Any, bytes]:
        async with door_site(asynchronous=door(record, config, shown)) as served:
            client = await served.client()
            found = await client.ask(data)
            assert served.instance.invokes == []
            return found

    return run(main)  # type: ignore[no-any-return]


def test_a_request_is_put_on_record_as_it_came_and_answered_with_202() -> None:
    record = AsyncRecord()
    status, headers, body = answer(
        post(
            PATH,
            b"1,2,3",
            "content-type: application/octet-stream",
            "X-Amzn-SageMaker-Content-Type: text/csv",
            "x-amzn-sagemaker-accept: application/json",
            "X-Amzn-SageMaker-Custom-Attributes: trace=1",
            "X-Amzn-SageMaker-Inference-Id: mine",
            "X-Amzn-SageMaker-RequestTTLSeconds: 60",
            "X-Amzn-SageMaker-InvocationTimeoutSeconds: 3600",
            "X-Amzn-SageMaker-S3OutputPathExtension: a/b",
            "X-Amzn-SageMaker-Filename: answer.json",
        ),
        record,
    )
    assert (status, body) == (202, b'{"InferenceId":"mine"}')
    assert headers["x-amzn-sagemaker-outputlocation"] == "s3://bucket/out/a/b/answer.json"
    assert headers["x-amzn-sagemaker-failurelocation"] == "s3://bucket/bad/a/b/answer-error.out"
    assert headers["content-type"] == "application/json"
    [(request, kept)] = record.kept
    assert kept == b"1,2,3"
    assert frames.decode_request_meta(request.meta) == frames.RequestMeta(
        "text/csv", "application/json", "trace=1", "mine"
    )
    assert dataclasses.replace(request, meta=b"") == AsyncRequest(
        endpoint="later",
        inference_id="mine",
        accepted=1000.0,
        expires=1060.0,
        timeout_s=3600.0,
        input_uri="",
        body_bytes=5,
        meta=b"",
        content_type="text/csv",
        output_uri="s3://bucket/out/a/b/answer.json",
        failure_uri="s3://bucket/bad/a/b/answer-error.out",
        success_topic="arn:ok",
        error_topic="",
        answer_in_success=False,
        answer_in_error=False,
    )


def test_the_answers_head_is_this_byte_for_byte() -> None:
    async def main() -> bytes:
        async with door_site(asynchronous=door(AsyncRecord())) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
            writer.write(
                post(PATH, b"x", "X-Amzn-SageMaker-Inference-Id: a", "X-Amzn-SageMaker-Filename: f")
            )
            data = await reader.readuntil(b"}")
            writer.close()
            return data

    said = re.sub(rb"(date: )[^\r]+|(x-amzn-requestid: )[^\r]+", rb"\1\2-", run(main).lower())
    lines = said.split(b"\r\n")
    assert lines[0] == b"http/1.1 202 accepted"
    assert sorted(lines[1:-2]) == [
        b"content-length: 19",
        b"content-type: application/json",
        b"date: -",
        b"server: penstock",
        b"x-amzn-requestid: -",
        b"x-amzn-sagemaker-failurelocation: s3://bucket/bad/f-error.out",
        b"x-amzn-sagemaker-outputlocation: s3://bucket/out/f",
    ]
    assert lines[-2:] == [b"", b'{"inferenceid":"a"}']


def test_without_words_of_the_callers_the_objects_have_a_name_of_their_own() -> None:
    record = AsyncRecord()
    status, headers, body = answer(
        post(PATH, b"", "X-Amzn-SageMaker-InputLocation: s3://bucket/in.json"), record
    )
    [(request, kept)] = record.kept
    ident = orjson.loads(body)["InferenceId"]
    assert status == 202
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", ident)
    assert headers["x-amzn-sagemaker-outputlocation"] == f"s3://bucket/out/{ident}.out"
    assert headers["x-amzn-sagemaker-failurelocation"] == f"s3://bucket/bad/{ident}-error.out"
    assert (kept, request.input_uri) == (b"", "s3://bucket/in.json")
    assert (request.expires - request.accepted, request.timeout_s) == (21_600.0, 900.0)


LOCATION = "X-Amzn-SageMaker-InputLocation: s3://bucket/in"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (post(PATH), "The request has no input"),
        (post(PATH, b"x", LOCATION), "either InputLocation or Body, and not both"),
        (post(PATH, b"x" * 128_001), "at 'body' failed to satisfy constraint: Member must have"
         " length less than or equal to 128000"),
        (post(PATH, b"x", "X-Amzn-SageMaker-RequestTTLSeconds: 59"), "requestTTLSeconds"),
        (post(PATH, b"x", "X-Amzn-SageMaker-RequestTTLSeconds: 21601"), "requestTTLSeconds"),
        (post(PATH, b"x", "X-Amzn-SageMaker-RequestTTLSeconds: soon"), "RequestTTLSeconds"),
        (post(PATH, b"x", "X-Amzn-SageMaker-InvocationTimeoutSeconds: 0"),
         "invocationTimeoutSeconds"),
        (post(PATH, b"x", "X-Amzn-SageMaker-InvocationTimeoutSeconds: 3601"),
         "invocationTimeoutSeconds"),
        (post(PATH, b"x", "X-Amzn-SageMaker-Filename: a/b"), "at 'filename'"),
        (post(PATH, b"x", "X-Amzn-SageMaker-S3OutputPathExtension: s3://other"),
         "s3OutputPathExtension"),
        (post(PATH, b"x", "X-Amzn-SageMaker-S3OutputPathExtension: ../../etc"), "without '.'"),
        (post(PATH, b"x", "X-Amzn-SageMaker-S3OutputPathExtension: /etc"), "without '.'"),
        (post(PATH, b"x", "X-Amzn-SageMaker-S3OutputPathExtension: a/.."), "without '.'"),
        (post(PATH, b"x", "X-Amzn-SageMaker-Inference-Id: " + "a" * 65), "at 'inferenceId'"),
        (post(PATH, b"", "X-Amzn-SageMaker-InputLocation: ftp://host/in"), "at 'inputLocation'"),
        (post("/endpoints/no/async-invocations", b"x"),
         "Endpoint no of account 123456789012 not found."),
        (post("/endpoints/at-once/async-invocations", b"x"), "has no AsyncInferenceConfig"),
    ],
)  # fmt: skip
def test_what_could_not_be_done_is_refused_and_not_put_on_record(data: bytes, words: str) -> None:
    record = AsyncRecord()
    status, headers, body = answer(data, record)
    assert (status, headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert words in orjson.loads(body)["Message"]
    assert record.kept == []


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("s3://any/where", True),
        ("file:///data/in/one.json", True),
        ("file:///data/inside", False),
        ("file:///data/in/../../etc/passwd", False),
        ("file:///data/in/%2e%2e/%2E%2e/etc/passwd", False),
        ("file:///etc/passwd", False),
        ("https://10.0.0.1/latest", False),
    ],
)
def test_with_keys_inputs_lie_in_s3_or_where_the_operator_allows(uri: str, allowed: bool) -> None:
    """Whoever may only call an endpoint must not read this server's files through its model."""
    record = AsyncRecord()
    status, _, body = answer(
        post(PATH, b"", f"X-Amzn-SageMaker-InputLocation: {uri}"), record, WITH_KEYS
    )
    assert (status == 202, len(record.kept)) == (allowed, int(allowed))
    assert allowed or "control.async_inputs" in orjson.loads(body)["Message"]


def test_an_operators_prefix_ends_at_a_slash() -> None:
    rule = InputRule(prefixes=("https://files.example/in/",))
    rule.check("https://files.example/in/a")
    with pytest.raises(CallerError):
        rule.check("https://files.example/in.other/a")


def test_what_could_not_be_put_on_record_is_not_told_as_accepted() -> None:
    record = AsyncRecord()
    record.refuses = NotNowError("state-not-writable", "The disk is full.", retry_after_s=5.0)
    status, headers, _ = answer(post(PATH, b"x"), record)
    assert (status, headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert headers["x-amz-retry-after"] == "5000"


async def test_two_requests_of_one_connection_are_answered_in_their_order() -> None:
    async with door_site(asynchronous=door(AsyncRecord())) as served:
        client = await served.client()
        for ident in ("a", "b"):
            client.write(post(PATH, b"x", f"X-Amzn-SageMaker-Inference-Id: {ident}"))
        bodies = [(await client.answer())[2] for _ in range(2)]
        assert [orjson.loads(body)["InferenceId"] for body in bodies] == ["a", "b"]


async def test_an_asynchronous_endpoint_refuses_to_be_called_at_once() -> None:
    """Both operations of the runtime; other doors' requests are answered, before its own ones."""
    routes = EndpointRoutes(
        endpoint="later",
        asynchronous=True,
        variants=(
            VariantRoutes(
                name="all",
                weight=1.0,
                strategy="RANDOM",
                copies=(CopyRoute(copy=9, instance_id="i1", outstanding_max=5),),
            ),
        ),
    )
    async with door_site(asynchronous=door(AsyncRecord())) as served:
        served.dispatcher.publish(routes)
        for operation in ("invocations", "invocations-response-stream"):
            client = await served.client()
            status, headers, body = await client.ask(post(f"/endpoints/later/{operation}", b"x"))
            assert (status, headers["x-amzn-errortype"]) == (400, "ValidationError")
            assert "InvokeEndpointAsync" in orjson.loads(body)["Message"]
        assert served.instance.invokes == []


async def test_boto3_unmodified_gets_its_members() -> None:
    async with door_site(asynchronous=door(AsyncRecord())) as served:
        client = boto3.client(
            "sagemaker-runtime",
            endpoint_url=f"http://127.0.0.1:{served.server.port}",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 1, "mode": "standard"}),
        )
        told = await asyncio.to_thread(
            client.invoke_endpoint_async,
            EndpointName="later",
            InferenceId="mine",
            InputLocation="s3://bucket/in",
            Filename="f.json",
        )
        assert told["ResponseMetadata"]["HTTPStatusCode"] == 202
        told.pop("ResponseMetadata")
        assert told == {
            "InferenceId": "mine",
            "OutputLocation": "s3://bucket/out/f.json",
            "FailureLocation": "s3://bucket/bad/f-error.out",
        }


def test_without_a_failure_path_no_failure_location_is_told() -> None:
    plain = AsyncSpec(output_uri="file:///out")
    assert locations(plain, "id", {}) == ("file:///out/id.out", "")


def of_target_models(name: str) -> DeploymentSpec | None:
    made = deployment(name)
    assert made is not None
    [variant] = made.variants
    model = ModelSource(model_name="m", multi_model=True)
    return dataclasses.replace(made, variants=(dataclasses.replace(variant, model=model),))


def test_a_multi_model_endpoint_is_told_which_model_by_the_header_of_invoke_endpoint() -> None:
    """AWS has no asynchronous requests to such endpoints, so its operation has no member for it."""
    record = AsyncRecord()
    header = "X-Amzn-SageMaker-Target-Model: team/a.tar.gz"
    assert answer(post(PATH, b"1", header), record, shown=of_target_models)[0] == 202
    [(kept, _)] = record.kept
    assert frames.decode_request_meta(kept.meta).target_model == "team/a.tar.gz"
    status, _, body = answer(post(PATH, b"1"), record, shown=of_target_models)
    assert (status, b"needs a TargetModel" in body) == (400, True)
    status, _, body = answer(post(PATH, b"1", header), record)
    assert (status, b"takes no TargetModel" in body) == (400, True)
    assert len(record.kept) == 1


def test_the_operation_has_no_inference_components_and_a_request_that_names_one_is_refused() -> (
    None
):
    """What decides who answers is not left out silently. botocore's model is what SDKs can say."""
    assert "InferenceComponentName" not in service_model(RUNTIME).operation_model(
        "InvokeEndpointAsync"
    ).input_shape.members  # fmt: skip
    record = AsyncRecord()
    header = "X-Amzn-SageMaker-Inference-Component: one"
    status, headers, body = answer(post(PATH, b"1", header), record)
    assert (status, headers["x-amzn-errortype"]) == (400, "ValidationError")
    assert b"Inference Component Name header is not allowed for endpoints without" in body
    assert record.kept == []
