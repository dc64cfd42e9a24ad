"""One damaged record costs only itself: it stays listed, says what is the matter, and can go."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from tests.api.test_sagemaker_operations import SagemakerPlane, in_service, plane  # noqa: F401

from penstock.control.store import rows
from penstock.control.store.records import COMPONENT, ENDPOINT, ENDPOINT_CONFIG, MODEL
from penstock.control.store.store import Store

KINDS = {
    MODEL: ("Model", "ModelName"),
    ENDPOINT_CONFIG: ("EndpointConfig", "EndpointConfigName"),
    ENDPOINT: ("Endpoint", "EndpointName"),
    COMPONENT: ("InferenceComponent", "InferenceComponentName"),
}


def create(plane: SagemakerPlane, name: str) -> None:  # noqa: F811
    """One of each kind, all of one name."""
    place = {"ModelDataUrl": "file:///models/shop"}
    bare: dict[str, Any] = {
        "VariantName": "blue",
        "InstanceType": "ml.local.small",
        "InitialInstanceCount": 1,
    }
    needs = {"MinMemoryRequiredInMb": 128, "NumberOfCpuCoresRequired": 1}
    for operation, members in (
        ("CreateModel", {"PrimaryContainer": place}),
        ("CreateEndpointConfig", {"ProductionVariants": [bare], "ExecutionRoleArn": ROLE}),
        ("CreateEndpoint", {"EndpointConfigName": name}),
        (
            "CreateInferenceComponent",
            {
                "EndpointName": name,
                "VariantName": "blue",
                "Specification": {"ModelName": name, "ComputeResourceRequirements": needs},
                "RuntimeConfig": {"CopyCount": 1},
            },
        ),
    ):
        key = f"{operation.removeprefix('Create')}Name"
        assert plane.call(operation, **({key: name} | members))[0] == 200


ROLE = "arn:aws:iam::123456789012:role/any"


def spoil(store: Store, *kinds: str) -> None:
    with store.begin() as db:
        for kind in kinds:
            table = rows.TABLES[kind]
            db.execute(update(table).where(table.c.key == "a-bad").values(request="{"))


def listed_of(plane: SagemakerPlane, kind: str) -> list[dict[str, Any]]:  # noqa: F811
    noun, _ = KINDS[kind]
    answer = plane.call(f"List{noun}s", SortBy="Name", SortOrder="Ascending")[1]
    found: list[dict[str, Any]] = answer[f"{noun}s"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_record_is_listed_says_so_and_can_be_deleted(
    plane: SagemakerPlane,  # noqa: F811
    kind: str,
) -> None:
    for name in ("a-bad", "witness"):
        create(plane, name)
        in_service(plane, name)
    plane.store(spoil, kind)
    noun, key = KINDS[kind]

    listed = listed_of(plane, kind)
    assert [one[key] for one in listed] == ["a-bad", "witness"]
    assert set(listed[0]) == set(listed[1])

    status, answer = plane.call(f"Describe{noun}", **{key: "a-bad"})
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert '"a-bad" can\'t be read' in answer["message"]
    assert "Delete it and create it again" in answer["message"]
    assert plane.call(f"Describe{noun}", **{key: "witness"})[0] == 200

    assert plane.call(f"Delete{noun}", **{key: "a-bad"})[0] == 200
    if kind == ENDPOINT:  # until its instances are gone
        assert plane.call("DescribeEndpoint", EndpointName="a-bad")[1]["EndpointStatus"] == (
            "Deleting"
        )
        assert plane.doorbell.rung[-1] == "a-bad"
        plane.store(Store.finish_delete, "a-bad")
    if kind == COMPONENT:  # until its copies are gone
        assert listed_of(plane, kind)[0]["InferenceComponentStatus"] == "Deleting"
        plane.store(Store.forget_component, "a-bad", "a-bad")
    assert [one[key] for one in listed_of(plane, kind)] == ["witness"]
    gone = plane.call(f"Describe{noun}", **{key: "a-bad"})
    assert "Could not find" in gone[1]["message"]


def test_what_uses_a_damaged_record_says_which_it_is(plane: SagemakerPlane) -> None:  # noqa: F811
    create(plane, "a-bad")
    in_service(plane, "a-bad")
    plane.store(spoil, *KINDS)
    for operation, members, named in (
        ("CreateEndpoint", {"EndpointName": "new", "EndpointConfigName": "a-bad"}, "configuration"),
        ("UpdateEndpoint", {"EndpointName": "a-bad", "EndpointConfigName": "a-bad"}, "endpoint"),
        (
            "UpdateInferenceComponentRuntimeConfig",
            {
                "InferenceComponentName": "a-bad",
                "DesiredRuntimeConfig": {"CopyCount": 2},
            },
            "inference component",
        ),
    ):
        status, answer = plane.call(operation, **members)
        assert status == 400
        assert f'{named} "a-bad" can\'t be read' in answer["message"]
