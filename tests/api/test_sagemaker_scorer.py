"""Which endpoint an update may name as the scorer of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_components import ROLE
from tests.api.test_sagemaker_components import VARIANT as WITHOUT_MODEL
from tests.api.test_sagemaker_operations import ARN, VARIANT, SagemakerPlane, error, in_service
from tests.api.test_sagemaker_rollouts import CANARY, DONE, config, rollout

from penstock.control.store.store import Store
from penstock.core.rollout.agreement import AgreementSpec


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    """Endpoint `shop` in service, and models `shop` and `many`."""
    made = SagemakerPlane(tmp_path / "state")
    for name, more in (("shop", {}), ("many", {"Mode": "MultiModel"})):
        container = {"ModelDataUrl": f"file:///models/{name}/"} | more
        assert made.call("CreateModel", ModelName=name, PrimaryContainer=container)[0] == 200
    endpoint(made, "shop")
    in_service(made)
    yield made
    made.close()


def endpoint(plane: SagemakerPlane, name: str, **variant: Any) -> None:
    """An endpoint that is being created, of a configuration with its name."""
    members = {"ProductionVariants": [variant or VARIANT]}
    if "ModelName" not in members["ProductionVariants"][0]:
        members |= {"ExecutionRoleArn": ROLE}
    assert plane.call("CreateEndpointConfig", EndpointConfigName=name, **members)[0] == 200
    made = plane.call("CreateEndpoint", EndpointName=name, EndpointConfigName=name)
    assert made[0] == 200, made


def update(plane: SagemakerPlane, scorer: str) -> tuple[int, dict[str, Any]]:
    """Of `shop`, to its configuration, with the tag."""
    tags = [{"Key": "penstock:agreement", "Value": f"scorer={scorer}"}]
    arn = f"{ARN}:endpoint-config/shop"
    assert plane.call("AddTags", ResourceArn=arn, Tags=tags)[0] == 200
    members = {"EndpointConfigName": "shop", "DeploymentConfig": config(CANARY)}
    return plane.call("UpdateEndpoint", EndpointName="shop", **members)


def refused(cause: str) -> tuple[int, dict[str, Any]]:
    return error(f"the tag penstock:agreement: {cause}")


def test_an_endpoint_in_service_may_be_the_scorer(plane: SagemakerPlane) -> None:
    """It is recorded by its own name, which is what gateways know it by."""
    endpoint(plane, "Judge")
    in_service(plane, "Judge")
    assert update(plane, "jUDGE") == DONE
    policy = rollout(plane)
    assert policy is not None
    assert policy.agreement == AgreementSpec(scorer="Judge")


def test_what_does_not_exist_or_is_the_endpoint_itself_is_refused(plane: SagemakerPlane) -> None:
    assert update(plane, "judge") == refused("there is no endpoint 'judge' to be the scorer.")
    assert update(plane, "SHOP") == refused(
        "endpoint 'SHOP' can't be the scorer of its own answers."
    )


def test_what_does_not_serve_is_refused(plane: SagemakerPlane) -> None:
    endpoint(plane, "judge")
    assert update(plane, "judge") == refused(
        "endpoint 'judge' can't be the scorer: it is Creating."
    )
    in_service(plane, "judge")
    plane.store(Store.begin_delete, "judge", now=plane.clock.wall())
    assert update(plane, "judge") == refused(
        "endpoint 'judge' can't be the scorer: it is Deleting."
    )


@pytest.mark.parametrize("variant", [WITHOUT_MODEL, VARIANT | {"ModelName": "many"}])
def test_what_needs_more_than_its_name_is_refused(
    plane: SagemakerPlane, variant: dict[str, Any]
) -> None:
    endpoint(plane, "judge", **variant)
    in_service(plane, "judge")
    assert update(plane, "judge") == refused(
        "endpoint 'judge' can't be the scorer: its requests have to name a component or a target"
        " model, and a scorer's name none."
    )
