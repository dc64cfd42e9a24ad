"""DataCaptureConfig on the wire: what is kept and shown, and what is refused before any work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_async import AsyncPlane
from tests.api.test_sagemaker_operations import VARIANT, error, in_service

from penstock.control.store.store import Store
from penstock.core.deployment.deployment import CaptureSpec
from penstock.errors import CallerError

BOTH = [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}]
CAPTURE = {
    "InitialSamplingPercentage": 30,
    "DestinationS3Uri": "s3://bucket/captured",
    "CaptureOptions": BOTH,
}
SHOWN = {
    "EnableCapture": True,
    "CaptureStatus": "Started",
    "CurrentSamplingPercentage": 30,
    "DestinationS3Uri": "s3://bucket/captured",
    "KmsKeyId": "",
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[AsyncPlane]:
    made = AsyncPlane(tmp_path / "state")
    made.call("CreateModel", ModelName="shop", PrimaryContainer={"ModelDataUrl": "file:///m"})
    yield made
    made.close()


def configure(
    plane: AsyncPlane, capture: dict[str, Any], name: str = "first", **more: Any
) -> tuple[int, dict[str, Any]]:
    return plane.call(
        "CreateEndpointConfig",
        EndpointConfigName=name,
        ProductionVariants=[VARIANT],
        DataCaptureConfig=capture,
        **more,
    )


def capture_of(plane: AsyncPlane) -> CaptureSpec | None:
    return plane.store(Store.describe_endpoint, "shop").shown.capture


def create(plane: AsyncPlane) -> None:
    plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    in_service(plane)


def test_a_configuration_is_kept_as_it_was_given_and_its_endpoint_shows_how_it_is(
    plane: AsyncPlane,
) -> None:
    assert configure(plane, CAPTURE)[0] == 200
    assert plane.outputs is not None
    assert plane.outputs.tried == ["s3://bucket/captured"]
    described = plane.call("DescribeEndpointConfig", EndpointConfigName="first")[1]
    assert described["DataCaptureConfig"] == CAPTURE
    create(plane)
    assert plane.call("DescribeEndpoint", EndpointName="shop")[1]["DataCaptureConfig"] == SHOWN


def test_one_that_is_switched_off_is_shown_as_stopped_and_tries_nothing(plane: AsyncPlane) -> None:
    assert configure(plane, CAPTURE | {"EnableCapture": False})[0] == 200
    assert plane.outputs is not None
    assert plane.outputs.tried == []
    create(plane)
    shown = plane.call("DescribeEndpoint", EndpointName="shop")[1]["DataCaptureConfig"]
    assert shown == SHOWN | {"EnableCapture": False, "CaptureStatus": "Stopped"}
    spec = capture_of(plane)
    assert spec is not None
    assert not spec.captures


@pytest.mark.parametrize(
    ("options", "inputs", "outputs"),
    [
        (["Input"], True, False),
        (["Output"], False, True),
        (["Input", "Output"], True, True),
        (["InputAndOutput"], True, True),
    ],
)
def test_a_deployment_has_it_in_words_of_its_own(
    plane: AsyncPlane, options: list[str], inputs: bool, outputs: bool
) -> None:
    types = {"CsvContentTypes": ["text/x", "Text/CSV"], "JsonContentTypes": ["application/y"]}
    modes = [{"CaptureMode": mode} for mode in options]
    given = CAPTURE | {"CaptureOptions": modes, "CaptureContentTypeHeader": types}
    assert configure(plane, given)[0] == 200
    create(plane)
    assert capture_of(plane) == CaptureSpec(
        destination_uri="s3://bucket/captured",
        percentage=30,
        inputs=inputs,
        outputs=outputs,
        csv_types=("text/csv", "text/x"),
        json_types=("application/y",),
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"InitialSamplingPercentage": 101}, "less than or equal to 100"),
        ({"InitialSamplingPercentage": -1}, "greater than or equal to 0"),
        ({"DestinationS3Uri": "https://bucket/p"}, "must be an s3:// or a file:/// prefix"),
        ({"DestinationS3Uri": "file:///p/../../etc"}, "must be an s3:// or a file:/// prefix"),
        ({"DestinationS3Uri": "ftp://bucket/p"}, "destinationS3Uri"),
        ({"CaptureOptions": []}, "captureOptions"),
        ({"CaptureOptions": [{"CaptureMode": "All"}]}, "captureMode"),
        ({"KmsKeyId": "alias/ours"}, "KmsKeyId is not supported: objects are written as"),
    ],
)
def test_what_could_not_work_is_refused(
    plane: AsyncPlane, changes: dict[str, Any], words: str
) -> None:
    status, answer = configure(plane, CAPTURE | changes)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert words in answer["message"]
    assert plane.outputs is not None
    assert plane.outputs.tried == []


def test_where_captures_can_not_be_written_no_configuration_is_made(plane: AsyncPlane) -> None:
    assert plane.outputs is not None
    plane.outputs.refuses = CallerError("output-unwritable", "No such bucket.", hint="Make it.")
    assert configure(plane, CAPTURE) == error("DataCaptureConfig: No such bucket. Make it.")


def test_asynchronous_calls_are_captured_as_well(plane: AsyncPlane) -> None:
    later = {"OutputConfig": {"S3OutputPath": "s3://bucket/out"}}
    assert configure(plane, CAPTURE, AsyncInferenceConfig=later)[0] == 200
    create(plane)
    shown = plane.call("DescribeEndpoint", EndpointName="shop")[1]
    assert (shown["DataCaptureConfig"], "AsyncInferenceConfig" in shown) == (SHOWN, True)


@pytest.mark.parametrize(
    ("flags", "percentage"),
    [
        ({}, 80),
        ({"RetainAllVariantProperties": True}, 30),
        (
            {
                "RetainAllVariantProperties": True,
                "ExcludeRetainedVariantProperties": [
                    {"VariantPropertyType": "DataCaptureConfig"},
                ],
            },
            80,
        ),
    ],
)
def test_an_update_keeps_what_is_captured_only_where_asked(
    plane: AsyncPlane, flags: dict[str, Any], percentage: int
) -> None:
    configure(plane, CAPTURE)
    configure(plane, CAPTURE | {"InitialSamplingPercentage": 80}, "second")
    create(plane)
    plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="second", **flags)
    in_service(plane)
    shown = plane.call("DescribeEndpoint", EndpointName="shop")[1]["DataCaptureConfig"]
    assert shown == SHOWN | {"CurrentSamplingPercentage": percentage}
