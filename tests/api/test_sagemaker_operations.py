"""The SageMaker control plane over its wire form: JSON bodies in, what clients see out.

The database is a real one; of the reconciler only its doorbell is needed here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.transform import FakeTransformDriver

from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.sagemaker.context import SagemakerContext
from penstock.api.sagemaker.operations import OPERATIONS
from penstock.clock import ManualClock
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import SAGEMAKER

ARN = "arn:aws:sagemaker:us-east-1:123456789012"
NO_ENDPOINT = f'Could not find endpoint "{ARN}:endpoint/no".'
VARIANT = {
    "VariantName": "blue",
    "ModelName": "shop",
    "InstanceType": "ml.local.small",
    "InitialInstanceCount": 2,
}

Call = Callable[..., tuple[int, dict[str, Any]]]


class Doorbell:
    """Stands where the reconciler is rung; counts are what it would have seen."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.counts: dict[str, int] = {}
        self.types: dict[str, dict[str, int]] = {}  #: in place of `counts`, by instance type
        self.copies: dict[str, int] = {}
        self.failures: dict[str, str] = {}  #: by variant

    def notify(self, endpoint: str) -> None:
        self.rung.append(endpoint)

    def pool_counts(self, endpoint: str) -> dict[str, dict[str, int]]:
        return self.types or {name: {"ml.m5.large": count} for name, count in self.counts.items()}

    def kept_counts(self, endpoint: str) -> dict[str, int]:
        return self.counts

    def last_failure(self, endpoint: str, variant: str) -> str:
        return self.failures.get(variant, "")

    def copy_counts(self, endpoint: str) -> dict[str, int]:
        return self.copies

    def copy_types(self, endpoint: str) -> dict[str, dict[str, int]]:
        return {name: {"ml.local.medium": count} for name, count in self.copies.items() if count}


class SagemakerPlane:
    """The front door with a database in a folder of the test's own."""

    def __init__(self, state_dir: Path) -> None:
        self.clock = ManualClock(wall_s=1_700_000_000.0)
        self.doorbell = Doorbell()
        self.jobs = FakeTransformDriver()
        self.key = ""  #: whose requests are signed with
        self.runner = asyncio.Runner()
        self.database = StoreThread(lambda: Store(state_dir))
        self.runner.run(self.database.open())
        signed = lambda context, key: replace(context, access_key=key)  # noqa: E731
        service = AwsService(SAGEMAKER, OPERATIONS, self.context, signed)
        self.door = AwsFrontDoor((service,), region_default="us-east-1")

    def context(self, region: str) -> SagemakerContext:
        return SagemakerContext(
            self.database, self.doorbell, self.clock, region, "123456789012", self.jobs
        )

    def call(self, operation: str, **members: Any) -> tuple[int, dict[str, Any]]:
        self.clock.advance(1)
        headers = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        if self.key:
            credential = f"Credential={self.key}/20231114/us-east-1/sagemaker/aws4_request"
            headers["Authorization"] = (
                f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature={'0' * 64}"
            )
        http = HttpRequest("POST", "/", "", headers, json.dumps(members).encode())
        answer = self.runner.run(self.door.handle(http, "id-1"))
        return answer.status, json.loads(answer.body)

    def store(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.runner.run(self.database.call(method, *args, **kwargs))

    def close(self) -> None:
        self.runner.run(self.database.close())
        self.runner.close()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    made = SagemakerPlane(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def with_config(plane: SagemakerPlane) -> SagemakerPlane:
    """Model `shop` and configuration `first` exist."""
    model = {"ModelDataUrl": "file:///models/shop"}
    assert plane.call("CreateModel", ModelName="shop", PrimaryContainer=model)[0] == 200
    made = plane.call(
        "CreateEndpointConfig", EndpointConfigName="first", ProductionVariants=[VARIANT]
    )
    assert made == (200, {"EndpointConfigArn": f"{ARN}:endpoint-config/first"})
    return plane


def in_service(plane: SagemakerPlane, name: str = "shop") -> None:
    """What the reconciler records once the copies are ready."""
    record = plane.store(Store.describe_endpoint, name)
    generation = (record.target or record.active).generation
    plane.store(Store.set_status, name, "InService", now=plane.clock.wall(),
                active_generation=generation)  # fmt: skip


def error(message: str, code: str = "ValidationException") -> tuple[int, dict[str, Any]]:
    return 400, {"__type": code, "message": message}


def test_an_image_that_names_no_runtime_is_refused_with_the_model(plane: SagemakerPlane) -> None:
    """Not minutes later, by the instance that was started for it."""
    container = {"Image": "local://auto", "ModelDataUrl": "s3://b/m.tar.gz"}
    status, told = plane.call("CreateModel", ModelName="shop", PrimaryContainer=container)
    assert status == 400
    assert told["message"].startswith("the image 'local://auto' names no runtime of Penstock. Use")


def test_describe_model_echoes_what_create_was_given(plane: SagemakerPlane) -> None:
    container = {"ModelDataUrl": "s3://b/m.tar.gz", "Environment": {"A": "1"}}
    created = plane.call("CreateModel", ModelName="shop", PrimaryContainer=container)
    assert created == (200, {"ModelArn": f"{ARN}:model/shop"})
    assert plane.call("DescribeModel", ModelName="shop") == (
        200,
        {
            "ModelName": "shop",
            "ModelArn": f"{ARN}:model/shop",
            "PrimaryContainer": container,
            "CreationTime": 1_700_000_001.0,
        },
    )


def test_a_model_of_that_name_exists_in_any_case(with_config: SagemakerPlane) -> None:
    again = with_config.call("CreateModel", ModelName="SHOP", PrimaryContainer={"Image": "x"})
    assert again == error(f'Cannot create already existing model "{ARN}:model/shop".')


@pytest.mark.parametrize(
    ("operation", "members", "message"),
    [
        ("DescribeModel", {"ModelName": "no"}, f'Could not find model "{ARN}:model/no".'),
        ("DeleteModel", {"ModelName": "no"}, f'Could not find model "{ARN}:model/no".'),
        (
            "DescribeEndpointConfig",
            {"EndpointConfigName": "no"},
            f'Could not find endpoint configuration "{ARN}:endpoint-config/no".',
        ),
        (
            "CreateEndpoint",
            {"EndpointName": "e", "EndpointConfigName": "no"},
            f'Could not find endpoint configuration "{ARN}:endpoint-config/no".',
        ),
        ("DescribeEndpoint", {"EndpointName": "no"}, NO_ENDPOINT),
        ("DeleteEndpoint", {"EndpointName": "no"}, NO_ENDPOINT),
        (
            "UpdateEndpoint",
            {"EndpointName": "no", "EndpointConfigName": "first"},
            NO_ENDPOINT,
        ),
        ("ListTags", {"ResourceArn": f"{ARN}:model/no"}, f'Could not find model "{ARN}:model/no".'),
    ],
)
def test_what_is_missing_is_named_by_its_arn(
    plane: SagemakerPlane, operation: str, members: dict[str, Any], message: str
) -> None:
    assert plane.call(operation, **members) == error(message)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ModelName": "no"}, f'Could not find model "{ARN}:model/no".'),
        ({"InstanceType": None}, "Variant 'blue' needs InstanceType or InstancePools."),
        ({"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "no serverless"),
        ({"RoutingConfig": {"RoutingStrategy": "KV_AWARE"}}, "KV_AWARE is not supported here"),
        ({"InitialInstanceCount": 0}, "Member must have value greater than or equal to 1"),
        ({"InitialVariantWeight": -1.0}, "0"),
        ({"VariantName": "-x"}, "must satisfy regular expression pattern"),
    ],
)
def test_a_configuration_that_could_never_serve_is_refused(
    with_config: SagemakerPlane, change: dict[str, Any], said: str
) -> None:
    variant = {key: value for key, value in (VARIANT | change).items() if value is not None}
    status, body = with_config.call(
        "CreateEndpointConfig", EndpointConfigName="second", ProductionVariants=[variant]
    )
    assert (status, body["__type"]) == (400, "ValidationException")
    assert said in body["message"]


def test_an_endpoint_is_creating_until_its_copies_are_ready(with_config: SagemakerPlane) -> None:
    created = with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    assert created == (200, {"EndpointArn": f"{ARN}:endpoint/shop"})
    assert with_config.doorbell.rung == ["shop"]
    _, described = with_config.call("DescribeEndpoint", EndpointName="shop")
    assert described["EndpointStatus"] == "Creating"
    assert "ProductionVariants" not in described
    in_service(with_config)
    with_config.doorbell.counts = {"blue": 2}
    _, described = with_config.call("DescribeEndpoint", EndpointName="shop")
    assert described["EndpointStatus"] == "InService"
    assert described["ProductionVariants"] == [
        {
            "VariantName": "blue",
            "CurrentWeight": 1.0,
            "DesiredWeight": 1.0,
            "CurrentInstanceCount": 2,
            "DesiredInstanceCount": 2,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
    ]


def test_an_endpoint_lives_on_when_its_configuration_and_model_are_deleted(
    with_config: SagemakerPlane,
) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    assert with_config.call("DeleteEndpointConfig", EndpointConfigName="first") == (200, {})
    assert with_config.call("DeleteModel", ModelName="shop") == (200, {})
    record = with_config.store(Store.describe_endpoint, "shop")
    assert record.shown.variants[0].model.uri == "file:///models/shop"


def test_a_busy_endpoint_is_not_updated(with_config: SagemakerPlane) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    busy = error(f'Cannot update in-progress endpoint "{ARN}:endpoint/shop".')
    assert (
        with_config.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="first") == busy
    )
    assert (
        with_config.call(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="shop",
            DesiredWeightsAndCapacities=[{"VariantName": "blue", "DesiredWeight": 2.0}],
        )
        == busy
    )


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (["blue", "blue"], 'The variant name "blue" was non-unique within the request.'),
        (
            ["blue", "C"],
            'The variant name(s) "C" is/are not present within endpoint configuration "first".',
        ),
    ],
)
def test_weights_name_each_variant_of_the_endpoint_once(
    with_config: SagemakerPlane, variants: list[str], message: str
) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    in_service(with_config)
    answered = with_config.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="shop",
        DesiredWeightsAndCapacities=[
            {"VariantName": name, "DesiredWeight": weight}
            for weight, name in enumerate(variants, 2)
        ],
    )
    assert answered == error(message)
    (variant,) = with_config.store(Store.describe_endpoint, "shop").shown.variants
    assert variant.weight == 1.0


def test_an_accepted_update_is_seen_by_the_next_describe(with_config: SagemakerPlane) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    in_service(with_config)
    bigger = VARIANT | {"InitialInstanceCount": 5}
    with_config.call(
        "CreateEndpointConfig", EndpointConfigName="second", ProductionVariants=[bigger]
    )
    with_config.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="second")
    _, described = with_config.call("DescribeEndpoint", EndpointName="shop")
    assert described["EndpointStatus"] == "Updating"
    assert described["EndpointConfigName"] == "first"
    assert described["PendingDeploymentSummary"]["EndpointConfigName"] == "second"
    (serving,) = described["ProductionVariants"]
    (coming,) = described["PendingDeploymentSummary"]["ProductionVariants"]
    since = described["LastModifiedTime"]
    assert serving["VariantStatus"] == [{"Status": "Updating", "StartTime": since}]
    assert coming["VariantStatus"] == [{"Status": "Creating", "StartTime": since}]
    in_service(with_config)
    _, described = with_config.call("DescribeEndpoint", EndpointName="shop")
    assert "VariantStatus" not in described["ProductionVariants"][0]


@pytest.mark.parametrize(
    ("flags", "weight", "count"),
    [
        ({}, 1.0, 5),
        ({"RetainAllVariantProperties": True}, 3.0, 4),
        (
            {
                "RetainAllVariantProperties": True,
                "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredWeight"}],
            },
            1.0,
            4,
        ),
    ],
)
def test_an_update_keeps_weights_and_counts_only_where_asked(
    with_config: SagemakerPlane, flags: dict[str, Any], weight: float, count: int
) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    in_service(with_config)
    with_config.call(
        "UpdateEndpointWeightsAndCapacities",
        EndpointName="shop",
        DesiredWeightsAndCapacities=[
            {"VariantName": "blue", "DesiredWeight": 3.0, "DesiredInstanceCount": 4}
        ],
    )
    in_service(with_config)
    bigger = VARIANT | {"InitialInstanceCount": 5}
    with_config.call(
        "CreateEndpointConfig", EndpointConfigName="second", ProductionVariants=[bigger]
    )
    with_config.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="second", **flags)
    (variant,) = with_config.store(Store.describe_endpoint, "shop").target.variants
    assert (variant.weight, variant.instance_count) == (weight, count)


def test_a_variant_may_be_set_to_zero_instances_and_no_further(with_config: SagemakerPlane) -> None:
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")
    in_service(with_config)

    def set_to(count: int) -> tuple[int, dict[str, Any]]:
        return with_config.call(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="shop",
            DesiredWeightsAndCapacities=[{"VariantName": "blue", "DesiredInstanceCount": count}],
        )

    assert set_to(0) == (200, {"EndpointArn": f"{ARN}:endpoint/shop"})
    (variant,) = with_config.store(Store.describe_endpoint, "shop").shown.variants
    assert variant.instance_count == 0
    in_service(with_config)
    status, told = set_to(-1)
    assert (status, told["__type"]) == (400, "ValidationException")


def test_how_often_metrics_are_published_is_checked_and_shown(with_config: SagemakerPlane) -> None:
    def configured(name: str, publish_s: int) -> tuple[int, dict[str, Any]]:
        return with_config.call(
            "CreateEndpointConfig",
            EndpointConfigName=name,
            ProductionVariants=[VARIANT],
            MetricsConfig={
                "EnableEnhancedMetrics": True,
                "MetricPublishFrequencyInSeconds": publish_s,
            },
        )

    assert configured("odd", 15) == error(
        "MetricsConfig: MetricPublishFrequencyInSeconds is 15; use one of 10, 30, 60, 120, 180,"
        " 240, 300."
    )
    assert configured("fine", 30)[0] == 200
    with_config.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="fine")
    in_service(with_config)
    _, described = with_config.call("DescribeEndpoint", EndpointName="shop")
    assert described["MetricsConfig"] == {
        "EnableEnhancedMetrics": True,
        "MetricPublishFrequencyInSeconds": 30,
    }


def test_what_happens_at_zero_copies_is_one_of_two_words(plane: SagemakerPlane) -> None:
    container = {
        "ModelDataUrl": "file:///models/shop",
        "Environment": {"PENSTOCK_ZERO_CAPACITY": "drop"},
    }
    made = plane.call("CreateModel", ModelName="shop", PrimaryContainer=container)
    assert made == error(
        "PENSTOCK_ZERO_CAPACITY in the environment of model 'shop' is 'drop'; use one of hold,"
        " refuse."
    )


def test_lists_are_paged_newest_first_and_can_be_filtered(plane: SagemakerPlane) -> None:
    for name in ("one", "two", "three"):
        plane.call("CreateModel", ModelName=name, PrimaryContainer={"Image": "x"})
    _, page = plane.call("ListModels", MaxResults=2)
    assert [model["ModelName"] for model in page["Models"]] == ["three", "two"]
    _, rest = plane.call("ListModels", MaxResults=2, NextToken=page["NextToken"])
    assert [model["ModelName"] for model in rest["Models"]] == ["one"]
    assert "NextToken" not in rest
    _, named = plane.call("ListModels", NameContains="t", SortBy="Name", SortOrder="Ascending")
    assert [model["ModelName"] for model in named["Models"]] == ["three", "two"]
    status, body = plane.call("ListModels", NextToken="bm90IG9uZQ")
    assert (status, body["__type"]) == (400, "ValidationException")
    assert body["message"].startswith("NextToken is not one of this list call's. Pass the token")


def test_tags_are_added_listed_in_pages_and_deleted(with_config: SagemakerPlane) -> None:
    arn = f"{ARN}:model/shop"
    tags = [{"Key": f"k{number}", "Value": "v"} for number in range(3)]
    assert with_config.call("AddTags", ResourceArn=arn, Tags=tags) == (200, {"Tags": tags})
    _, page = with_config.call("ListTags", ResourceArn=arn, MaxResults=50)
    assert page == {"Tags": tags}
    assert with_config.call("DeleteTags", ResourceArn=arn, TagKeys=["k0", "k2"]) == (200, {})
    assert with_config.call("ListTags", ResourceArn=arn)[1] == {"Tags": [tags[1]]}
    assert with_config.call("ListTags", ResourceArn=arn, NextToken="@@@@") == error(
        "NextToken is not one of this list call's."
    )


def test_the_region_of_the_signature_names_the_arn(plane: SagemakerPlane) -> None:
    credential = "Credential=KEY/20231114/eu-west-3/sagemaker/aws4_request"
    headers = {
        "X-Amz-Target": "SageMaker.CreateModel",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature={'0' * 64}",
    }
    body = json.dumps({"ModelName": "far", "PrimaryContainer": {"Image": "x"}}).encode()
    http = HttpRequest("POST", "/", "", headers, body)
    answer = plane.runner.run(plane.door.handle(http, "id-1"))
    assert json.loads(answer.body) == {
        "ModelArn": "arn:aws:sagemaker:eu-west-3:123456789012:model/far"
    }


def test_who_follows_an_endpoints_log_while_waiting_is_told_that_there_is_none(
    plane: SagemakerPlane,
) -> None:
    """As CloudWatch Logs says it: the SDK goes on; any other error would end its deploy."""
    headers = {
        "X-Amz-Target": "Logs_20140328.FilterLogEvents",
        "Content-Type": "application/x-amz-json-1.1",
    }
    http = HttpRequest("POST", "/", "", headers, b'{"logGroupName":"/aws/sagemaker/Endpoints/a"}')
    answer = plane.runner.run(plane.door.handle(http, "id-1"))
    told = json.loads(answer.body)
    assert (answer.status, told["__type"]) == (400, "ResourceNotFoundException")


def test_an_unknown_operation_and_a_torn_body_are_told_in_the_protocols_form(
    plane: SagemakerPlane,
) -> None:
    status, body = plane.call("CreateTrainingJob")
    assert (status, body["__type"]) == (400, "UnknownOperationException")
    headers = {"X-Amz-Target": "SageMaker.CreateModel"}
    answer = plane.runner.run(plane.door.handle(HttpRequest("POST", "/", "", headers, b"{"), "i"))
    assert answer.status == 400
    assert json.loads(answer.body)["__type"] == "SerializationException"


def test_a_container_vouches_for_its_artifact_where_callers_are_known(
    plane: SagemakerPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    vouches = {"Environment": {"PENSTOCK_TRUST_ARTIFACT": "true"}}
    container = {"ModelDataUrl": "file:///models/shop/", **vouches}
    assert plane.call("CreateModel", ModelName="one", PrimaryContainer=container)[0] == 200
    status, told = plane.call(
        "CreateModel", ModelName="many", PrimaryContainer={**container, "Mode": "MultiModel"}
    )
    assert (status, "multi-model endpoint" in str(told)) == (400, True)
    strangers = replace(plane.context("us-east-1"), strangers=True)
    monkeypatch.setattr(plane, "context", lambda region: strangers)
    service = AwsService(SAGEMAKER, OPERATIONS, plane.context, lambda context, key: context)
    plane.door = AwsFrontDoor((service,), region_default="us-east-1")
    status, told = plane.call("CreateModel", ModelName="open", PrimaryContainer=container)
    assert (status, "--insecure" in str(told)) == (400, True)
