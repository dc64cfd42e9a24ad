"""Models of several containers: what CreateModel takes, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.test_sagemaker_operations import SagemakerPlane, plane

from penstock.api.runtime.errors import RuntimeErrors
from penstock.api.sagemaker.containers import model_source
from penstock.core.deployment.deployment import ModelSource
from penstock.errors import ModelError, from_dict
from penstock.wire.aws.errors import AwsError

__all__ = ["plane"]

ONE: dict[str, Any] = {"ModelDataUrl": "file:///one"}
TWO: dict[str, Any] = {"Image": "registry.example/two:1"}
DIRECT = {"InferenceExecutionConfig": {"Mode": "Direct"}}


def several(*containers: dict[str, Any], **members: Any) -> ModelSource:
    return model_source({"ModelName": "m", "Containers": list(containers), **members})


def named(container: dict[str, Any], name: str) -> dict[str, Any]:
    return container | {"ContainerHostname": name}


def test_each_container_is_a_source_of_its_own_in_its_order() -> None:
    made = several(ONE, TWO, ONE, EnableNetworkIsolation=True)
    assert [(one.uri, one.image) for one in made.containers] == [
        ("file:///one", ""), ("", "registry.example/two:1"), ("file:///one", ""),
    ]  # fmt: skip
    assert [one.hostname for one in made.containers] == [
        "container-1", "container-2", "container-3",
    ]  # fmt: skip
    assert (made.uri, made.image, made.direct) == ("", "", False)
    assert made.network_isolated
    assert all(one.network_isolated for one in made.containers)
    assert made.parts == made.containers


def test_a_model_of_one_container_is_that_container_unless_requests_name_it() -> None:
    for given in ({"PrimaryContainer": ONE}, {"Containers": [named(ONE, "alone")]}):
        made = model_source({"ModelName": "m", **given})
        assert (made.uri, made.containers, made.parts) == ("file:///one", (), (made,))
    assert [one.hostname for one in several(named(ONE, "alone"), **DIRECT).containers] == ["alone"]


def test_the_platforms_variables_are_those_of_all_containers_the_first_one_first() -> None:
    made = several(
        ONE | {"Environment": {"PENSTOCK_ROUTING": "RANDOM"}},
        TWO | {"Environment": {"PENSTOCK_ROUTING": "other", "PENSTOCK_ZERO_CAPACITY": "hold"}},
    )
    assert dict(made.environment) == {
        "PENSTOCK_ROUTING": "RANDOM", "PENSTOCK_ZERO_CAPACITY": "hold",
    }  # fmt: skip
    assert dict(made.containers[1].environment)["PENSTOCK_ROUTING"] == "other"


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ([], "1 to 15 Containers; 0 are given"),
        ([ONE] * 16, "1 to 15 Containers; 16 are given"),
        ([named(ONE, "a"), TWO], "for all of them, or for none"),
        ([named(ONE, "a"), named(TWO, "a")], "must be unique among Containers; 'a' is not"),
        ([ONE, {}], "needs ModelDataUrl"),
        ([ONE, {"ModelDataUrl": "file:///many/", "Mode": "MultiModel"}],
         "Container container-2: Mode MultiModel is for models of one container"),
        ([ONE, {"Image": "local://nothing"}], "names no runtime of Penstock"),
        ([ONE, {"ModelPackageName": "p"}], "ModelPackageName is not supported"),
    ],
)  # fmt: skip
def test_what_could_never_be_loaded_is_refused(containers: list[Any], words: str) -> None:
    with pytest.raises(AwsError) as refused:
        several(*containers)
    assert words in str(refused.value)


def test_models_whose_containers_are_named_are_not_for_jobs(plane: SagemakerPlane) -> None:
    members = {"Containers": [ONE, TWO], **DIRECT}
    assert plane.call("CreateModel", ModelName="named", **members)[0] == 200
    status, told = plane.call(
        "CreateTransformJob", TransformJobName="j", ModelName="named",
        TransformInput={"DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": "file:///in"}}},
        TransformOutput={"S3OutputPath": "file:///out"},
        TransformResources={"InstanceType": "ml.local.small", "InstanceCount": 1},
    )  # fmt: skip
    assert (status, "Mode Direct" in str(told)) == (400, True)


def test_a_model_is_described_as_it_was_created(plane: SagemakerPlane) -> None:
    """As AWS's samples of inference pipelines and of direct invocation create theirs."""
    first = {
        "ContainerHostname": "first", "Image": "registry.example/one:1", "Mode": "SingleModel",
        "ModelDataUrl": "s3://bucket/one.tar.gz", "Environment": {"A": "1"},
        "ImageConfig": {"RepositoryAccessMode": "Platform"},
    }  # fmt: skip
    data = {
        "S3DataSource": {
            "S3Uri": "s3://bucket/two/",
            "S3DataType": "S3Prefix",
            "CompressionType": "None",
        }
    }
    second = {"ContainerHostname": "second", "Image": "one:2", "ModelDataSource": data}
    members = {
        "ModelName": "described", "Containers": [first, second],
        "ExecutionRoleArn": "arn:aws:iam::123456789012:role/any",
        "EnableNetworkIsolation": True, **DIRECT,
    }  # fmt: skip
    status, told = plane.call("CreateModel", **members)
    assert status == 200, told
    status, described = plane.call("DescribeModel", ModelName="described")
    assert status == 200
    assert {key: described[key] for key in members} == members


def test_every_container_may_only_vouch_where_callers_are_known(plane: SagemakerPlane) -> None:
    wrong = TWO | {"Environment": {"PENSTOCK_TRUST_ARTIFACT": "maybe"}}
    status, told = plane.call("CreateModel", ModelName="v", Containers=[ONE, wrong])
    assert (status, "PENSTOCK_TRUST_ARTIFACT" in str(told)) == (400, True)


def test_an_error_names_the_container_that_it_is_from() -> None:
    error = ModelError("bad-type", "unreadable", original_status=415)
    error.container = "container-2"
    _, body = RuntimeErrors("1", "us-east-1").render(from_dict(error.to_dict()), "e")
    assert b'Received client error (415) from container-2 with message \\"unreadable\\"' in body
    assert "container" not in ModelError("bad-type", "unreadable").to_dict()
