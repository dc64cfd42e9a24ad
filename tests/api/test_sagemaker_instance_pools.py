"""InstancePools of a variant: what is refused, what is recorded, what Describe shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.test_sagemaker_operations import (  # noqa: F401  (a fixture)
    ARN,
    SagemakerPlane,
    error,
    in_service,
    plane,
)

from penstock.control.store.store import Store
from penstock.core.deployment.deployment import PoolSpec

SMALL, LARGE = "ml.local.small", "ml.c7i.large"
POOLS = [
    {"InstanceType": SMALL, "Priority": 3, "ModelNameOverride": "tiny"},
    {"InstanceType": LARGE, "Priority": 1},
]
VARIANT = {"VariantName": "blue", "ModelName": "shop", "InitialInstanceCount": 3}


def models(site: SagemakerPlane, *names: str, mode: str = "SingleModel") -> None:
    for name in names:
        container = {"ModelDataUrl": f"file:///models/{name}", "Mode": mode}
        assert site.call("CreateModel", ModelName=name, PrimaryContainer=container)[0] == 200


def config(site: SagemakerPlane, **members: Any) -> tuple[int, dict[str, Any]]:
    variant = {key: value for key, value in (VARIANT | members).items() if value is not None}
    return site.call(
        "CreateEndpointConfig",
        EndpointConfigName="pools",
        ProductionVariants=[variant],
        **(
            {}
            if variant.get("ModelName")
            else {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/any"}
        ),
    )


def test_pools_are_recorded_by_priority_and_described_with_their_counts(
    plane: SagemakerPlane,  # noqa: F811
) -> None:
    models(plane, "shop", "tiny")
    assert config(plane, InstancePools=POOLS)[0] == 200
    _, described = plane.call("DescribeEndpointConfig", EndpointConfigName="pools")
    assert described["ProductionVariants"][0]["InstancePools"] == POOLS
    plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    (variant,) = plane.store(Store.describe_endpoint, "shop").shown.variants
    assert variant.instance_type == LARGE
    assert [(one.instance_type, one.priority) for one in variant.pools] == [(LARGE, 1), (SMALL, 3)]
    assert variant.model.model_name == "shop"
    assert isinstance(variant.pools[1], PoolSpec)
    assert variant.pools[1].model.uri == "file:///models/tiny"
    in_service(plane)
    plane.doorbell.types = {"blue": {SMALL: 2}}
    _, described = plane.call("DescribeEndpoint", EndpointName="shop")
    (shown,) = described["ProductionVariants"]
    assert shown["InstancePools"] == [
        {"InstanceType": LARGE, "CurrentInstanceCount": 0},
        {"InstanceType": SMALL, "CurrentInstanceCount": 2},
    ]
    assert (shown["CurrentInstanceCount"], shown["DesiredInstanceCount"]) == (2, 3)


def test_a_generation_on_its_way_shows_its_pools(plane: SagemakerPlane) -> None:  # noqa: F811
    models(plane, "shop", "tiny")
    config(plane, InstancePools=POOLS)
    plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    in_service(plane)
    plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    _, described = plane.call("DescribeEndpoint", EndpointName="shop")
    (pending,) = described["PendingDeploymentSummary"]["ProductionVariants"]
    assert [one["InstanceType"] for one in pending["InstancePools"]] == [LARGE, SMALL]
    assert "InstanceType" not in pending


def pool(**members: Any) -> list[dict[str, Any]]:
    return [{"InstanceType": LARGE, "Priority": 1} | members]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"InstancePools": POOLS, "InstanceType": LARGE}, "either InstanceType or InstancePools"),
        ({"InstancePools": []}, "length greater than or equal to 1"),
        ({"InstancePools": pool() * 6}, "length less than or equal to 5"),
        ({"InstancePools": pool() + pool(Priority=2)}, "InstancePools names 'ml.c7i.large' twice"),
        ({"InstancePools": pool(Priority=0)}, "greater than or equal to 1"),
        ({"InstancePools": pool(Priority=6)}, "less than or equal to 5"),
        ({"InstancePools": pool(InstanceType="m5.large")}, "1.member.instanceType' failed"),
        ({"InstancePools": [{"InstanceType": LARGE}]}, "1.member.priority' failed to satisfy"),
        (
            {"InstancePools": pool(ModelNameOverride="shop"), "ModelName": None},
            "ModelNameOverride is for variants with ModelName",
        ),
    ],
)
def test_pools_that_contradict_themselves_are_refused(
    plane: SagemakerPlane,  # noqa: F811
    members: dict[str, Any],
    said: str,
) -> None:
    models(plane, "shop")
    status, body = config(plane, **members)
    assert (status, body["__type"]) == (400, "ValidationException")
    assert said in body["message"]


def test_the_models_of_pools_must_exist_and_be_of_the_variants_mode(
    plane: SagemakerPlane,  # noqa: F811
) -> None:
    models(plane, "shop")
    missing = error(f'Could not find model "{ARN}:model/tiny".')
    assert config(plane, InstancePools=POOLS) == missing
    models(plane, "tiny", mode="MultiModel")
    assert config(plane, InstancePools=POOLS)[0] == 200
    status, body = plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    assert (status, "must have the same Mode" in body["message"]) == (400, True)
    plane.call("DeleteModel", ModelName="tiny")
    created = plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    assert created == missing


def test_components_on_pools_have_one_specification_for_all_of_them(
    plane: SagemakerPlane,  # noqa: F811
) -> None:
    models(plane, "shop")
    assert config(plane, ModelName=None, InstancePools=pool())[0] == 200
    plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="pools")
    in_service(plane)
    needs = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 256}, "ModelName": "shop"}
    asked = {
        "InferenceComponentName": "chat",
        "EndpointName": "shop",
        "VariantName": "blue",
        "RuntimeConfig": {"CopyCount": 1},
    }
    given = [needs | {"InstanceType": LARGE}]
    status, body = plane.call("CreateInferenceComponent", Specifications=given, **asked)
    assert (status, "one Specification without InstanceType" in body["message"]) == (400, True)
    assert plane.call("CreateInferenceComponent", Specification=needs, **asked)[0] == 200
