"""Transform jobs over their wire form: what is refused before any work, and what is told.

The database is a real one; the driver of jobs is only asked and rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_operations import ARN, SagemakerPlane, error

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    MIB,
    DataProcessing,
    TransformCapture,
    TransformInput,
    TransformOutput,
    TransformSpec,
)
from penstock.errors import CallerError
from penstock.jobs.transform import transactions
from penstock.jobs.transform.records import COMPLETED, JobTotals

INPUT = {
    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "file:///data/pairs"}},
    "ContentType": "text/csv",
    "SplitType": "Line",
}
OUTPUT = {"S3OutputPath": "s3://bucket/out", "Accept": "text/csv", "AssembleWith": "Line"}
RESOURCES = {"InstanceType": "ml.local.small", "InstanceCount": 2}
JOB: dict[str, Any] = {
    "TransformJobName": "nightly",
    "ModelName": "pairs",
    "TransformInput": INPUT,
    "TransformOutput": OUTPUT,
    "TransformResources": RESOURCES,
}
JOB_ARN = f"{ARN}:transform-job/nightly"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    made = SagemakerPlane(tmp_path / "state")
    container = {"ModelDataUrl": "file:///models/pairs", "Environment": {"A": "1", "B": "2"}}
    assert made.call("CreateModel", ModelName="pairs", PrimaryContainer=container)[0] == 200
    yield made
    made.close()


def create(plane: SagemakerPlane, **members: Any) -> tuple[int, dict[str, Any]]:
    """Members of None are left out."""
    asked = {name: one for name, one in (JOB | members).items() if one is not None}
    return plane.call("CreateTransformJob", **asked)


def test_a_job_is_what_was_asked_for_with_aws_defaults(plane: SagemakerPlane) -> None:
    assert create(plane) == (200, {"TransformJobArn": JOB_ARN})
    assert plane.jobs.checked == [
        TransformSpec(
            job="nightly",
            model=ModelSource(
                model_name="pairs",
                uri="file:///models/pairs",
                environment=(("A", "1"), ("B", "2")),
            ),
            instance_type="ml.local.small",
            instance_count=2,
            input=TransformInput(uri="file:///data/pairs", content_type="text/csv", split="Line"),
            output=TransformOutput(uri="s3://bucket/out", accept="text/csv", assemble="Line"),
            processing=DataProcessing(input_filter="$", output_filter="$", join="None"),
            strategy="MultiRecord",
            payload_bytes_max=6 * MIB,
            unset=("strategy", "payload_bytes_max"),
            concurrency_max=0,
            invocation_timeout_s=600.0,
            invocation_retries_max=3,
            refused_max=0,
        )
    ]
    assert plane.jobs.rung == ["nightly"]
    record = plane.store(transactions.describe, "NIGHTLY")
    assert record.spec == plane.jobs.checked[0]  # it comes back from its row as it was


def test_every_member_reaches_the_job(plane: SagemakerPlane) -> None:
    made = create(
        plane,
        MaxConcurrentTransforms=4,
        MaxPayloadInMB=25,
        BatchStrategy="SingleRecord",
        ModelClientConfig={"InvocationsTimeoutInSeconds": 30, "InvocationsMaxRetries": 0},
        DataProcessing={"InputFilter": "$[1:]", "OutputFilter": "$.label", "JoinSource": "Input"},
        Environment={
            "B": "3",
            "PENSTOCK_TRANSFORM_REFUSED_RECORDS": "skip:10",
            "PENSTOCK_TRANSFORM_PRIORITY": "-5",
            "PENSTOCK_TRANSFORM_CORES_MAX": "2",
            "PENSTOCK_TRANSFORM_COLUMNS": "left, right",
        },
    )
    assert made[0] == 200, made
    spec = plane.store(transactions.describe, "nightly").spec
    assert (spec.concurrency_max, spec.payload_bytes_max) == (4, 25 * MIB)
    assert (spec.strategy, spec.unset) == ("SingleRecord", ())
    assert (spec.invocation_timeout_s, spec.invocation_retries_max) == (30.0, 0)
    assert spec.processing == DataProcessing(
        input_filter="$[1:]", output_filter="$.label", join="Input"
    )
    assert spec.model.environment == (("A", "1"), ("B", "3"))  # the job's over the model's
    assert (spec.refused_max, spec.priority, spec.cores_max) == (10, -5, 2)
    assert spec.input.columns == ("left", "right")


@pytest.mark.parametrize("ids", [True, False])
def test_what_is_captured_reaches_the_job_and_is_described(
    plane: SagemakerPlane, ids: bool
) -> None:
    given = {"DestinationS3Uri": "s3://b/c", "GenerateInferenceId": ids}
    assert create(plane, DataCaptureConfig=given)[0] == 200
    spec = plane.store(transactions.describe, "nightly").spec
    assert spec.capture == TransformCapture(uri="s3://b/c", inference_ids=ids)
    described = plane.call("DescribeTransformJob", TransformJobName="nightly")[1]
    assert described["DataCaptureConfig"] == given


def test_the_owner_is_whose_key_signed(plane: SagemakerPlane) -> None:
    plane.key = "AKIDTEAM"
    assert create(plane)[0] == 200
    assert plane.jobs.checked[0].owner == "AKIDTEAM"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"ModelName": "no"}, f'Could not find model "{ARN}:model/no".'),
        (
            {"TransformInput": INPUT | {"SplitType": "Lines"}},
            "1 validation error detected: Value 'Lines' at 'transformInput.splitType' failed to"
            " satisfy constraint: Member must satisfy enum value set: [None, Line, RecordIO,"
            " TFRecord]",
        ),
        (
            {"MaxPayloadInMB": 101},
            "MaxPayloadInMB 101 must be at most 100.",
        ),
        (
            {"MaxPayloadInMB": 51, "MaxConcurrentTransforms": 2},
            "MaxConcurrentTransforms (2) times MaxPayloadInMB (51) must be at most 100.",
        ),
        (
            {"DataCaptureConfig": {"DestinationS3Uri": "s3://b/c", "KmsKeyId": "alias/ours"}},
            "DataCaptureConfig.KmsKeyId is not supported: objects are written as the bucket's own"
            " settings say. Set the key as the bucket's default encryption. Leave"
            " DataCaptureConfig.KmsKeyId out.",
        ),
        (
            {"DataCaptureConfig": {"DestinationS3Uri": "https://b/c"}},
            "DestinationS3Uri must be an s3:// prefix or a file:// folder.",
        ),
        (
            {"TransformOutput": {"S3OutputPath": "https://host/out"}},
            "S3OutputPath must be an s3:// prefix or a file:// folder.",
        ),
        (
            {"Environment": {"PENSTOCK_TRANSFORM_PRIORITY": "high"}},
            "PENSTOCK_TRANSFORM_PRIORITY in Environment is 'high'."
            " Use a whole number from -100 to 100.",
        ),
    ],
)
def test_what_can_be_known_at_once_is_said_at_once(
    plane: SagemakerPlane, members: dict[str, Any], message: str
) -> None:
    assert create(plane, **members) == error(message)
    assert plane.jobs.rung == []
    assert plane.call("ListTransformJobs") == (200, {"TransformJobSummaries": []})


def test_what_the_check_of_its_places_finds_refuses_the_job(plane: SagemakerPlane) -> None:
    plane.jobs.fault = CallerError("input-empty", "no object at file:///data", hint="Look there.")
    assert create(plane) == error("no object at file:///data. Look there.")
    assert plane.call("DescribeTransformJob", TransformJobName="nightly") == error(
        f'Could not find transform job "{JOB_ARN}".'
    )


def test_no_name_is_used_twice(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    status, told = create(plane, TransformJobName="Nightly")
    assert (status, told["__type"]) == (400, "ResourceInUse")
    assert told["Message"].endswith(f"a job with this name already exists ({JOB_ARN})")


def test_describe_echoes_the_request_and_tells_how_far_it_is(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    described = plane.call("DescribeTransformJob", TransformJobName="nightly")
    assert described == (
        200,
        JOB
        | {
            "TransformJobArn": JOB_ARN,
            "TransformJobStatus": "InProgress",
            "CreationTime": 1_700_000_002.0,
            "PenstockProgress": {"Records": 0},
        },
    )


def test_an_ended_job_tells_when_and_why(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    totals = JobTotals(objects=1, records=7)
    plane.store(
        transactions.end, "nightly", "Failed", reason="pairs.csv, record 3: no number",
        totals=totals, now=1_700_000_100.0,
    )  # fmt: skip
    _, told = plane.call("DescribeTransformJob", TransformJobName="nightly")
    assert told["TransformJobStatus"] == "Failed"
    assert told["TransformEndTime"] == 1_700_000_100.0
    assert told["FailureReason"] == "pairs.csv, record 3: no number"
    assert told["PenstockProgress"] == {"Records": 7}
    _, listed = plane.call("ListTransformJobs")
    assert listed["TransformJobSummaries"] == [
        {
            "TransformJobName": "nightly",
            "TransformJobArn": JOB_ARN,
            "CreationTime": 1_700_000_002.0,
            "TransformEndTime": 1_700_000_100.0,
            "LastModifiedTime": 1_700_000_100.0,
            "TransformJobStatus": "Failed",
            "FailureReason": "pairs.csv, record 3: no number",
        }
    ]


def test_lists_are_filtered_by_status_and_paged(plane: SagemakerPlane) -> None:
    for name in ("a", "b", "c"):
        assert create(plane, TransformJobName=name)[0] == 200
    plane.store(transactions.end, "b", COMPLETED, reason="", totals=JobTotals(), now=5.0)

    def names(**filters: Any) -> list[str]:
        _, told = plane.call("ListTransformJobs", **filters)
        return [one["TransformJobName"] for one in told["TransformJobSummaries"]]

    assert names() == ["c", "b", "a"]
    assert names(StatusEquals="InProgress", SortBy="Name", SortOrder="Ascending") == ["a", "c"]
    _, first = plane.call("ListTransformJobs", MaxResults=2)
    assert names(MaxResults=2, NextToken=first["NextToken"]) == ["a"]


def test_stop_is_heard_once_and_again_but_not_after_the_end(plane: SagemakerPlane) -> None:
    stop = "StopTransformJob"
    assert plane.call(stop, TransformJobName="no") == error(
        f'Could not find transform job "{ARN}:transform-job/no".'
    )
    assert create(plane)[0] == 200
    assert plane.call(stop, TransformJobName="nightly") == (200, {})
    assert plane.call(stop, TransformJobName="nightly") == (200, {})
    assert plane.store(transactions.describe, "nightly").status == "Stopping"
    assert plane.jobs.rung == ["nightly"] * 3
    plane.store(transactions.end, "nightly", "Stopped", reason="", totals=JobTotals(), now=5.0)
    assert plane.call(stop, TransformJobName="nightly") == error(
        "The request was rejected because the transform job 'nightly' is in status Stopped."
    )


def test_a_job_has_tags(plane: SagemakerPlane) -> None:
    assert create(plane, Tags=[{"Key": "team", "Value": "search"}])[0] == 200
    assert plane.call("ListTags", ResourceArn=JOB_ARN) == (
        200,
        {"Tags": [{"Key": "team", "Value": "search"}]},
    )
