"""AsyncInferenceConfig on the wire: what is kept and shown, and what is refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_operations import VARIANT, SagemakerPlane, error, in_service

from penstock.api.sagemaker.context import SagemakerContext
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import AsyncSpec
from penstock.errors import CallerError, PenstockError

TOPIC = "arn:aws:sns:us-east-1:123456789012:told"
OUTPUT = {"S3OutputPath": "s3://bucket/out"}
WHOLE = {
    "OutputConfig": {
        **OUTPUT,
        "S3FailurePath": "file:///bad",
        "NotificationConfig": {
            "SuccessTopic": TOPIC,
            "ErrorTopic": TOPIC,
            "IncludeInferenceResponseIn": ["ERROR_NOTIFICATION_TOPIC"],
        },
    },
    "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 7},
}


class Outputs:
    """Knows one topic; what it was asked to try, and what comes of it."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.refuses: PenstockError | None = None

    def knows(self, topic: str) -> bool:
        return topic == TOPIC

    async def check_writable(self, uri: str) -> None:
        self.tried.append(uri)
        if self.refuses is not None:
            raise self.refuses


class AsyncPlane(SagemakerPlane):
    def __init__(self, folder: Path) -> None:
        self.outputs: Outputs | None = Outputs()
        super().__init__(folder)

    def context(self, region: str) -> SagemakerContext:
        return replace(super().context(region), asynchronous=self.outputs)

    def configure(
        self, asked: dict[str, Any], variant: dict[str, Any] = VARIANT, **more: Any
    ) -> tuple[int, dict[str, Any]]:
        return self.call(
            "CreateEndpointConfig",
            EndpointConfigName="later",
            ProductionVariants=[variant],
            AsyncInferenceConfig=asked,
            **more,
        )


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[AsyncPlane]:
    made = AsyncPlane(tmp_path / "state")
    made.call("CreateModel", ModelName="shop", PrimaryContainer={"ModelDataUrl": "file:///m"})
    yield made
    made.close()


@pytest.mark.parametrize("asked", [WHOLE, {"OutputConfig": OUTPUT}])
def test_it_is_kept_and_shown_as_it_was_given(plane: AsyncPlane, asked: dict[str, Any]) -> None:
    assert plane.configure(asked)[0] == 200
    described = plane.call("DescribeEndpointConfig", EndpointConfigName="later")[1]
    assert described["AsyncInferenceConfig"] == asked
    plane.call("CreateEndpoint", EndpointName="later", EndpointConfigName="later")
    in_service(plane, "later")
    described = plane.call("DescribeEndpoint", EndpointName="later")[1]
    assert described["AsyncInferenceConfig"] == asked


def test_a_deployment_has_it_in_words_of_its_own(plane: AsyncPlane) -> None:
    plane.configure(WHOLE)
    assert plane.outputs is not None
    assert plane.outputs.tried == ["s3://bucket/out", "file:///bad"]
    plane.call("CreateEndpoint", EndpointName="later", EndpointConfigName="later")
    assert plane.store(Store.describe_endpoint, "later").shown.asynchronous == AsyncSpec(
        output_uri="s3://bucket/out",
        failure_uri="file:///bad",
        concurrency_max=7,
        success_topic=TOPIC,
        error_topic=TOPIC,
        answer_in_success=False,
        answer_in_error=True,
    )


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({}, "needs S3OutputPath"),
        ({"S3OutputPath": "https://bucket/out"}, "must be an s3:// or a file:/// prefix"),
        (OUTPUT | {"S3FailurePath": "file:///bad/../../etc"}, "must be an s3:// or a file:///"),
        (OUTPUT | {"KmsKeyId": "alias/ours"}, "KmsKeyId is not supported: objects are written as"),
        (OUTPUT | {"NotificationConfig": {"ErrorTopic": TOPIC + "-2"}}, "control.topics"),
        (OUTPUT | {"NotificationConfig": {"SuccessTopic": "http://10.0.0.1/"}}, "successTopic"),
    ],
)
def test_what_leads_nowhere_is_refused(
    plane: AsyncPlane, output: dict[str, Any], words: str
) -> None:
    """A URL is no topic: only the operator says where this server posts to."""
    status, answer = plane.configure({"OutputConfig": output})
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert words in answer["message"]
    assert plane.outputs is not None
    assert plane.outputs.tried == []


def test_where_outputs_can_not_be_written_no_configuration_is_made(plane: AsyncPlane) -> None:
    assert plane.outputs is not None
    plane.outputs.refuses = CallerError("output-unwritable", "No such bucket.", hint="Make it.")
    assert plane.configure(WHOLE) == error("AsyncInferenceConfig: No such bucket. Make it.")
    assert plane.call("ListEndpointConfigs")[1]["EndpointConfigs"] == []


def test_a_server_without_a_queue_takes_none(plane: AsyncPlane) -> None:
    plane.outputs = None
    status, answer = plane.configure(WHOLE)
    assert (status, "not supported" in answer["message"]) == (400, True)


def test_inference_components_take_none_and_multi_model_endpoints_do(plane: AsyncPlane) -> None:
    bare = {key: value for key, value in VARIANT.items() if key != "ModelName"}
    role = "arn:aws:iam::123456789012:role/any"
    status, answer = plane.configure(WHOLE, bare, ExecutionRoleArn=role)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert answer["message"] == (
        "One or more endpoint features are not supported using this configuration."
        " AsyncInferenceConfig: variant 'blue' takes inference components, which have no"
        " asynchronous requests."
    )
    container = {"ModelDataUrl": "file:///many", "Mode": "MultiModel"}
    plane.call("CreateModel", ModelName="many", PrimaryContainer=container)
    assert plane.configure(WHOLE, VARIANT | {"ModelName": "many"})[0] == 200
    assert plane.call("CreateEndpoint", EndpointName="later", EndpointConfigName="later")[0] == 200
    assert plane.store(Store.describe_endpoint, "later").shown.asynchronous is not None
