"""ShadowProductionVariants on the wire: what is refused, what is recorded, and what Describe
shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_operations import ARN, VARIANT, SagemakerPlane, error, in_service

from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec

DARK = VARIANT | {"VariantName": "dark", "InitialInstanceCount": 1, "InitialVariantWeight": 0.5}
DONE = (200, {"EndpointArn": f"{ARN}:endpoint/shop"})


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    made = SagemakerPlane(tmp_path / "state")
    for name in ("shop", "new"):
        container = {"ModelDataUrl": f"file:///models/{name}"}
        assert made.call("CreateModel", ModelName=name, PrimaryContainer=container)[0] == 200
    yield made
    made.close()


def configure(
    plane: SagemakerPlane,
    *shadows: dict[str, Any],
    name: str = "first",
    variants: tuple[dict[str, Any], ...] = (VARIANT,),
    **members: Any,
) -> tuple[int, dict[str, Any]]:
    return plane.call(
        "CreateEndpointConfig",
        EndpointConfigName=name,
        ProductionVariants=list(variants),
        ShadowProductionVariants=list(shadows),
        **members,
    )


def create(plane: SagemakerPlane) -> tuple[int, dict[str, Any]]:
    return plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first")


def served(plane: SagemakerPlane, *shadows: dict[str, Any]) -> None:
    assert configure(plane, *shadows)[0] == 200
    assert create(plane) == DONE
    in_service(plane)


def active(plane: SagemakerPlane) -> DeploymentSpec:
    found: DeploymentSpec = plane.store(Store.describe_endpoint, "shop").shown
    return found


def described(plane: SagemakerPlane) -> dict[str, Any]:
    status, answer = plane.call("DescribeEndpoint", EndpointName="shop")
    assert status == 200
    return answer


def test_a_configuration_shows_what_was_given_and_the_defaults(plane: SagemakerPlane) -> None:
    bare = {"VariantName": "dark", "ModelName": "new", "InstanceType": "ml.local.small"}
    assert configure(plane, bare)[0] == 200
    status, answer = plane.call("DescribeEndpointConfig", EndpointConfigName="first")
    assert status == 200
    assert answer["ShadowProductionVariants"] == [
        bare | {"InitialInstanceCount": 1, "InitialVariantWeight": 1.0}
    ]
    assert answer["ProductionVariants"] == [VARIANT | {"InitialVariantWeight": 1.0}]


def test_a_configuration_without_one_shows_none(plane: SagemakerPlane) -> None:
    made = plane.call(
        "CreateEndpointConfig", EndpointConfigName="first", ProductionVariants=[VARIANT]
    )
    assert made[0] == 200
    _, answer = plane.call("DescribeEndpointConfig", EndpointConfigName="first")
    assert "ShadowProductionVariants" not in answer
    assert create(plane) == DONE
    in_service(plane)
    assert "ShadowProductionVariants" not in described(plane)


ONE_EACH = "ShadowProductionVariants needs exactly one variant there and one in ProductionVariants;"


@pytest.mark.parametrize(
    ("variants", "shadows", "members", "message"),
    [
        pytest.param(
            (VARIANT,),
            (DARK, DARK | {"VariantName": "darker"}),
            {},
            f"{ONE_EACH} these have 2 and 1.",
            id="two shadows",
        ),
        pytest.param(
            (VARIANT, VARIANT | {"VariantName": "green"}),
            (DARK,),
            {},
            f"{ONE_EACH} these have 1 and 2.",
            id="two production variants",
        ),
        pytest.param(
            (VARIANT,),
            (DARK | {"VariantName": "Blue"},),
            {},
            "Production variant names must be unique; 'Blue' is given twice.",
            id="one name",
        ),
        pytest.param(
            (VARIANT,),
            ({key: value for key, value in DARK.items() if key != "ModelName"},),
            {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/any"},
            "Variant 'dark' needs ModelName: with ShadowProductionVariants no variant takes"
            " inference components.",
            id="no model",
        ),
        pytest.param(
            (VARIANT,),
            (DARK,),
            {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "file:///out"}}},
            "ShadowProductionVariants is not for configurations with AsyncInferenceConfig:"
            " asynchronous requests are not copied to a shadow variant.",
            id="asynchronous",
        ),
        pytest.param(
            (VARIANT,),
            (DARK | {"InstanceType": "m5.large"},),
            {},
            "1 validation error detected",
            id="no such type",
        ),
        pytest.param(
            (VARIANT,),
            (DARK | {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}},),
            {},
            "ShadowProductionVariants.ServerlessConfig is not supported: this server has no"
            " serverless variants. Leave ShadowProductionVariants.ServerlessConfig out.",
            id="serverless",
        ),
    ],
)
def test_what_is_refused(
    plane: SagemakerPlane,
    variants: tuple[dict[str, Any], ...],
    shadows: tuple[dict[str, Any], ...],
    members: dict[str, Any],
    message: str,
) -> None:
    status, answer = configure(plane, *shadows, variants=variants, **members)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert answer["message"].startswith(message)


def test_the_model_of_a_shadow_must_exist(plane: SagemakerPlane) -> None:
    assert configure(plane, DARK | {"ModelName": "nobody"})[0] == 400
    assert configure(plane, DARK)[0] == 200
    assert plane.call("DeleteModel", ModelName="shop")[0] == 200
    assert create(plane)[0] == 400


def test_a_shadow_must_take_what_the_production_variant_takes(plane: SagemakerPlane) -> None:
    multi = {"ModelDataUrl": "file:///models/many/", "Mode": "MultiModel"}
    assert plane.call("CreateModel", ModelName="many", PrimaryContainer=multi)[0] == 200
    assert configure(plane, DARK | {"ModelName": "many"})[0] == 200
    assert create(plane) == error(
        "Shadow variant 'dark': its model 'many' must have the same Mode as 'shop' of 'blue', whose"
        " requests it gets."
    )


def test_it_is_recorded_apart_from_production(plane: SagemakerPlane) -> None:
    served(plane, DARK | {"ModelName": "new"})
    spec = active(plane)
    assert [one.name for one in spec.variants] == ["blue"]
    (dark,) = spec.shadows
    assert (dark.name, dark.weight, dark.instance_count) == ("dark", 0.5, 1)
    assert dark.model is not None
    assert dark.model.uri == "file:///models/new"


def test_an_endpoint_shows_it_like_a_production_variant(plane: SagemakerPlane) -> None:
    served(plane, DARK)
    plane.doorbell.counts = {"blue": 2, "dark": 1}
    answer = described(plane)
    assert answer["ShadowProductionVariants"] == [
        {
            "VariantName": "dark",
            "CurrentWeight": 0.5,
            "DesiredWeight": 0.5,
            "CurrentInstanceCount": 1,
            "DesiredInstanceCount": 1,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
    ]
    assert [one["VariantName"] for one in answer["ProductionVariants"]] == ["blue"]


@pytest.mark.parametrize("failure", ["", "The model raised: no such file"])
def test_one_that_is_not_there_says_so_while_its_endpoint_is_in_service(
    plane: SagemakerPlane, failure: str
) -> None:
    served(plane, DARK)
    plane.doorbell.counts = {"blue": 2}
    plane.doorbell.failures = {"dark": failure}
    answer = described(plane)
    assert answer["EndpointStatus"] == "InService"
    (dark,) = answer["ShadowProductionVariants"]
    told = {"StatusMessage": failure} if failure else {}
    assert dark["VariantStatus"] == [{"Status": "Creating", **told}]
    assert dark["CurrentInstanceCount"] == 0
    assert "VariantStatus" not in answer["ProductionVariants"][0]


def test_its_share_and_count_can_be_changed(plane: SagemakerPlane) -> None:
    served(plane, DARK)
    change = {"VariantName": "dark", "DesiredWeight": 1.0, "DesiredInstanceCount": 3}
    assert (
        plane.call(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="shop",
            DesiredWeightsAndCapacities=[change],
        )
        == DONE
    )
    (dark,) = active(plane).shadows
    assert (dark.weight, dark.instance_count) == (1.0, 3)
    assert [(one.weight, one.instance_count) for one in active(plane).variants] == [(1.0, 2)]
    (shown,) = described(plane)["ShadowProductionVariants"]
    assert (shown["CurrentWeight"], shown["DesiredWeight"]) == (0.5, 1.0)
    assert shown["VariantStatus"][0]["Status"] == "Updating"


def test_an_update_may_take_it_away_bring_another_and_keep_its_share(
    plane: SagemakerPlane,
) -> None:
    served(plane, DARK)
    assert configure(plane, DARK | {"InitialVariantWeight": 0.1}, name="second")[0] == 200
    updated = plane.call(
        "UpdateEndpoint",
        EndpointName="shop",
        EndpointConfigName="second",
        RetainAllVariantProperties=True,
    )
    assert updated == DONE
    target = plane.store(Store.describe_endpoint, "shop").target
    assert [one.weight for one in target.shadows] == [0.5]
    pending = described(plane)["PendingDeploymentSummary"]
    assert [one["VariantName"] for one in pending["ShadowProductionVariants"]] == ["dark"]
    in_service(plane)
    bare = plane.call(
        "CreateEndpointConfig", EndpointConfigName="bare", ProductionVariants=[VARIANT]
    )
    assert bare[0] == 200
    assert plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="bare") == DONE
    assert "ShadowProductionVariants" not in described(plane)["PendingDeploymentSummary"]
    in_service(plane)
    assert active(plane).shadows == ()
