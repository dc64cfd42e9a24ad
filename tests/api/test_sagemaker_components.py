"""Inference components over the wire form of the SageMaker control plane.

As in `test_sagemaker_operations.py`: the database is real, of the reconciler only its doorbell and
its counts are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_operations import ARN, SagemakerPlane, error, in_service
from tests.api.test_sagemaker_rollouts import put_alarms

from penstock.control.store.records import NotFound, RolloutSettled
from penstock.control.store.store import Store
from penstock.core.deployment.endpoint_state import SetComponent
from penstock.core.rollout.agreement import AgreementSpec

ROLE = "arn:aws:iam::123456789012:role/any"
VARIANT = {"VariantName": "blue", "InstanceType": "ml.local.medium", "InitialInstanceCount": 1}
NEEDS = {"MinMemoryRequiredInMb": 256, "NumberOfCpuCoresRequired": 0.5}
SPECIFICATION = {"ModelName": "chat", "ComputeResourceRequirements": NEEDS}
CHAT = f"{ARN}:inference-component/chat"
SHOP = f"{ARN}:endpoint/shop"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    """Model `chat`, and endpoint `shop` in service, which takes components."""
    made = SagemakerPlane(tmp_path / "state")
    model(made, "chat")
    assert config(made)[0] == 200
    assert made.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="takes")[0] == 200
    in_service(made)
    made.doorbell.rung.clear()
    yield made
    made.close()


def model(plane: SagemakerPlane, name: str, **container: Any) -> None:
    given = {"ModelDataUrl": f"file:///models/{name}"} | container
    assert plane.call("CreateModel", ModelName=name, PrimaryContainer=given)[0] == 200


def config(plane: SagemakerPlane, name: str = "takes", **more: Any) -> tuple[int, dict[str, Any]]:
    given = {"ProductionVariants": [VARIANT], "ExecutionRoleArn": ROLE} | more
    return plane.call("CreateEndpointConfig", EndpointConfigName=name, **given)


def create(plane: SagemakerPlane, name: str = "chat", **more: Any) -> tuple[int, dict[str, Any]]:
    given = {"EndpointName": "shop", "VariantName": "blue", "Specification": SPECIFICATION}
    given |= {"RuntimeConfig": {"CopyCount": 2}} | more
    given = {key: value for key, value in given.items() if value is not None}
    return plane.call("CreateInferenceComponent", InferenceComponentName=name, **given)


def settle(plane: SagemakerPlane, status: str = "InService", **more: Any) -> None:
    """What the reconciler records."""
    copies = plane.store(Store.describe_component, "chat").desired.copies
    action = SetComponent("chat", status, copies, "any", **more)
    plane.store(Store.set_component, "shop", action, now=plane.clock.wall())


def describe(plane: SagemakerPlane, name: str = "chat") -> dict[str, Any]:
    status, described = plane.call("DescribeInferenceComponent", InferenceComponentName=name)
    assert status == 200, described
    return described


def update(plane: SagemakerPlane, **more: Any) -> tuple[int, dict[str, Any]]:
    return plane.call("UpdateInferenceComponent", InferenceComponentName="chat", **more)


def test_describe_says_what_create_was_given_and_what_is_there(plane: SagemakerPlane) -> None:
    specification = SPECIFICATION | {
        "StartupParameters": {"ModelDataDownloadTimeoutInSeconds": 60},
        "SchedulingConfig": {"PlacementStrategy": "BINPACK"},
        "DataCacheConfig": {"EnableCaching": True},
    }
    assert create(plane, Specification=specification) == (200, {"InferenceComponentArn": CHAT})
    assert plane.doorbell.rung == ["shop"]
    plane.doorbell.copies = {"chat": 1}
    described = describe(plane)
    created = described.pop("CreationTime")
    assert described.pop("LastModifiedTime") == created
    assert described == {
        "InferenceComponentName": "chat",
        "InferenceComponentArn": CHAT,
        "EndpointName": "shop",
        "EndpointArn": SHOP,
        "VariantName": "blue",
        "InferenceComponentStatus": "Creating",
        "Specification": specification,
        "RuntimeConfig": {
            "DesiredCopyCount": 2,
            "CurrentCopyCount": 1,
            "PlacementStatus": [{"InstanceType": "ml.local.medium", "CurrentCopyCount": 1}],
        },
    }


def test_the_image_of_a_container_is_told_as_deployed(plane: SagemakerPlane) -> None:
    container = {
        "Image": "any/image:1",
        "ArtifactUrl": "s3://b/m.tar.gz",
        "Environment": {"A": "1"},
    }
    given = {"Container": container, "ComputeResourceRequirements": NEEDS}
    assert create(plane, Specification=given, VariantName=None)[0] == 200
    shown = describe(plane)["Specification"]["Container"]
    image = shown.pop("DeployedImage")
    assert (image["SpecifiedImage"], image["ResolvedImage"]) == ("any/image:1", "any/image:1")
    assert shown == {"ArtifactUrl": "s3://b/m.tar.gz", "Environment": {"A": "1"}}
    loaded = plane.store(Store.describe_component, "chat").desired.active.model
    assert (loaded.uri, loaded.image) == ("s3://b/m.tar.gz", "any/image:1")


def test_the_texts_that_clients_search_for(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    assert create(plane, "CHAT") == error(
        f'Cannot create already existing inference component "{CHAT}".'
    )
    assert create(plane, "x", EndpointName="no") == error(
        f'Could not find endpoint "{ARN}:endpoint/no".'
    )
    missing = SPECIFICATION | {"ModelName": "no"}
    assert create(plane, "x", Specification=missing) == error(
        f'Could not find model "{ARN}:model/no".'
    )
    for operation, more in (
        ("Describe", {}),
        ("Delete", {}),
        ("Update", {"RuntimeConfig": {"CopyCount": 1}}),
    ):
        answer = plane.call(f"{operation}InferenceComponent", InferenceComponentName="no", **more)
        assert answer == error(
            f'Could not find inference component "{ARN}:inference-component/no".'
        )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"Specification": None}, "Specification is required"),
        ({"Specifications": [SPECIFICATION]}, "either Specification or Specifications"),
        ({"RuntimeConfig": None}, "RuntimeConfig.CopyCount is required"),
        ({"VariantName": "red"}, 'The variant name(s) "red" is/are not present within endpoint'),
        ({"Specification": {"ComputeResourceRequirements": NEEDS}}, "ModelName or Container"),
        ({"Specification": {"ModelName": "chat"}}, "ComputeResourceRequirements is required"),
        (
            {"Specification": SPECIFICATION | {"ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 300, "MaxMemoryRequiredInMb": 200}}},
            "MaxMemoryRequiredInMb 200 is less than MinMemoryRequiredInMb 300",
        ),
        (
            {"Specification": SPECIFICATION | {"ComputeResourceRequirements": NEEDS | {
                "NumberOfAcceleratorDevicesRequired": 1.5}}},
            "NumberOfAcceleratorDevicesRequired 1.5 must be a whole number",
        ),
        (
            {"Specification": SPECIFICATION | {"ComputeResourceRequirements": NEEDS | {
                "AcceleratorPartitionType": "mig-1g.5gb"}}},
            "AcceleratorPartitionType is not supported",
        ),
        (
            {"Specification": SPECIFICATION | {"SchedulingConfig": {
                "PlacementStrategy": "SPREAD",
                "AvailabilityZoneBalance": {"EnforcementMode": "PERMISSIVE"}}}},
            "AvailabilityZoneBalance is not supported",
        ),
        (
            {"Specification": SPECIFICATION | {"SchedulingConfig": {"PlacementStrategy": "X"}}},
            "Member must satisfy enum value set: [SPREAD, BINPACK]",
        ),
        ({"RuntimeConfig": {"CopyCount": -1}}, "Member must have value greater than or equal to 0"),
        (
            {"Specification": SPECIFICATION | {"ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 1}}},
            "Member must have value greater than or equal to 128",
        ),
        ({"Specification": SPECIFICATION | {"InstanceType": "ml.m5.large"}},
         "No specification is for instance type 'ml.local.medium' of variant 'blue'"),
    ],
)  # fmt: skip
def test_what_can_not_be_carried_out_is_refused_with_the_reason(
    plane: SagemakerPlane, more: dict[str, Any], told: str
) -> None:
    status, answer = create(plane, **more)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert told in answer["message"]
    assert plane.doorbell.rung == []


ADAPTER = {
    "BaseInferenceComponentName": "chat",
    "Container": {"ArtifactUrl": "s3://b/a.tar.gz"},
}


def lora(plane: SagemakerPlane, name: str = "lora", **more: Any) -> tuple[int, dict[str, Any]]:
    given = {"VariantName": None, "RuntimeConfig": None, "Specification": ADAPTER}
    return create(plane, name, **(given | more))


def test_an_adapter_is_an_artifact_on_a_base_that_serves(plane: SagemakerPlane) -> None:
    assert lora(plane) == error(f'Could not find inference component "{CHAT}".')
    assert create(plane)[0] == 200
    on_base = f'Cannot create inference component "{ARN}:inference-component/lora" on base "{CHAT}"'
    assert lora(plane) == error(f"{on_base}: it is Creating.")
    settle(plane)
    assert lora(plane)[0] == 200
    described = describe(plane, "lora")
    assert described["Specification"] == ADAPTER
    assert described["VariantName"] == "blue"
    assert "RuntimeConfig" not in described
    nested = ADAPTER | {"BaseInferenceComponentName": "lora"}
    status, answer = lora(plane, "second", Specification=nested)
    assert (status, "it is an adapter itself" in answer["message"]) == (400, True)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"RuntimeConfig": {"CopyCount": 1}}, "is on every copy of its base and has no CopyCount"),
        ({"Specification": ADAPTER | {"ModelName": "chat"}}, "has no ModelName"),
        (
            {"Specification": ADAPTER | {"ComputeResourceRequirements": NEEDS}},
            "has no ComputeResourceRequirements",
        ),
        (
            {"Specification": {"BaseInferenceComponentName": "chat"}},
            "needs Container.ArtifactUrl",
        ),
        (
            {"Specification": ADAPTER | {"Container": {"Image": "i", "ArtifactUrl": "s3://b/a"}}},
            "has no Container.Image",
        ),
    ],
)
def test_what_an_adapter_does_not_have_is_refused(
    plane: SagemakerPlane, more: dict[str, Any], told: str
) -> None:
    assert create(plane)[0] == 200
    settle(plane)
    status, answer = lora(plane, **more)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert told in answer["message"]


def test_an_adapter_is_updated_by_another_artifact_alone(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    settle(plane)
    assert lora(plane)[0] == 200
    action = SetComponent("lora", "InService", 0, "any")
    plane.store(Store.set_component, "shop", action, now=plane.clock.wall())

    def change(**more: Any) -> tuple[int, str]:
        status, answer = plane.call(
            "UpdateInferenceComponent", InferenceComponentName="lora", **more
        )
        return status, answer.get("message", "")

    for more, told in (
        ({"RuntimeConfig": {"CopyCount": 2}}, "has no CopyCount of its own"),
        ({"Specification": SPECIFICATION}, "must name the same BaseInferenceComponentName"),
    ):
        status, message = change(**more)
        assert (status, told in message) == (400, True), message
    status, answer = plane.call(
        "UpdateInferenceComponentRuntimeConfig",
        InferenceComponentName="lora",
        DesiredRuntimeConfig={"CopyCount": 2},
    )
    assert (status, "has no CopyCount" in answer["message"]) == (400, True)
    assert update(plane, Specification=ADAPTER)[0] == 400, "a model does not become an adapter"
    other = ADAPTER | {"Container": {"ArtifactUrl": "s3://b/b.tar.gz"}}
    assert change(Specification=other)[0] == 200
    assert describe(plane, "lora")["Specification"] == other


def test_an_adapter_is_rolled_out_by_parts_of_its_bases_copies(plane: SagemakerPlane) -> None:
    assert create(plane, RuntimeConfig={"CopyCount": 5})[0] == 200
    settle(plane)
    assert lora(plane)[0] == 200
    action = SetComponent("lora", "InService", 0, "any")
    plane.store(Store.set_component, "shop", action, now=plane.clock.wall())
    percent = {"Type": "CAPACITY_PERCENT", "Value": 40}
    policy = {"MaximumBatchSize": percent, "WaitIntervalInSeconds": 30}
    status, _ = plane.call(
        "UpdateInferenceComponent",
        InferenceComponentName="lora",
        Specification=ADAPTER,
        DeploymentConfig={"RollingUpdatePolicy": policy},
    )
    assert status == 200
    target = plane.store(Store.describe_component, "lora").desired.target
    assert (target.batch, target.batch_wait_s, target.base) == (2, 30.0, "chat")


def test_a_base_is_deleted_after_its_adapters(plane: SagemakerPlane) -> None:
    assert create(plane)[0] == 200
    settle(plane)
    assert lora(plane)[0] == 200
    delete = "DeleteInferenceComponent"
    assert plane.call(delete, InferenceComponentName="chat") == error(
        f'Cannot delete inference component "{CHAT}": it is the base of lora. Delete its adapters'
        " first."
    )
    assert plane.call(delete, InferenceComponentName="lora")[0] == 200
    assert plane.call(delete, InferenceComponentName="chat")[0] == 200


def test_of_several_specifications_the_one_for_the_variants_type_is_taken(
    plane: SagemakerPlane,
) -> None:
    model(plane, "other")
    several = [
        SPECIFICATION | {"InstanceType": "ml.m5.large"},
        SPECIFICATION | {"InstanceType": "ml.local.medium", "ModelName": "other"},
    ]
    assert create(plane, Specification=None, Specifications=several)[0] == 200
    assert plane.store(Store.describe_component, "chat").desired.active.model.model_name == "other"
    assert describe(plane)["Specifications"] == several
    unnamed = [SPECIFICATION, SPECIFICATION]
    status, answer = create(plane, "x", Specification=None, Specifications=unnamed)
    assert (status, "needs an InstanceType of its own" in answer["message"]) == (400, True)


def test_an_endpoint_with_a_model_of_its_own_takes_no_components(plane: SagemakerPlane) -> None:
    variant = VARIANT | {"ModelName": "chat"}
    assert config(plane, "own", ProductionVariants=[variant])[0] == 200
    plane.call("CreateEndpoint", EndpointName="own", EndpointConfigName="own")
    status, answer = create(plane, EndpointName="own")
    assert (status, "has a model of its own (ModelName)" in answer["message"]) == (400, True)


def test_a_multi_model_container_is_no_component(plane: SagemakerPlane) -> None:
    model(plane, "many", Mode="MultiModel")
    status, answer = create(plane, Specification=SPECIFICATION | {"ModelName": "many"})
    assert (status, "Mode MultiModel" in answer["message"]) == (400, True)


def test_copies_are_changed_by_both_calls_and_only_in_service(plane: SagemakerPlane) -> None:
    create(plane)
    busy = error(f'Cannot update in-progress inference component "{CHAT}".')
    wanted = {"DesiredRuntimeConfig": {"CopyCount": 0}}
    runtime = "UpdateInferenceComponentRuntimeConfig"
    assert plane.call(runtime, InferenceComponentName="chat", **wanted) == busy
    settle(plane)
    done = (200, {"InferenceComponentArn": CHAT})
    assert plane.call(runtime, InferenceComponentName="chat", **wanted) == done
    described = describe(plane)
    assert (described["InferenceComponentStatus"], described["RuntimeConfig"]) == (
        "Updating", {"DesiredCopyCount": 0, "CurrentCopyCount": 0},
    )  # fmt: skip
    assert update(plane, RuntimeConfig={"CopyCount": 3}) == busy
    settle(plane)
    assert update(plane, RuntimeConfig={"CopyCount": 3}) == done
    assert describe(plane)["RuntimeConfig"]["DesiredCopyCount"] == 3
    settle(plane, "Failed", failure_reason="no room")
    assert describe(plane)["FailureReason"] == "no room"
    status, answer = update(plane, RuntimeConfig={"CopyCount": 1})
    assert (status, "is Failed and can only be deleted" in answer["message"]) == (400, True)


def test_a_new_specification_replaces_the_old_one_batch_by_batch_if_it_is_asked_for(
    plane: SagemakerPlane,
) -> None:
    create(plane)
    settle(plane)
    policy = {"RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50}, "WaitIntervalInSeconds": 30,
    }}  # fmt: skip
    new = SPECIFICATION | {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 512}}
    assert update(plane, Specification=new, DeploymentConfig=policy)[0] == 200
    target = plane.store(Store.describe_component, "chat").desired.target
    assert (target.number, target.batch, target.batch_wait_s) == (2, 1, 30.0)
    assert target.need.resources.memory_bytes == 512 << 20
    described = describe(plane)
    assert (described["Specification"], described["LastDeploymentConfig"]) == (new, policy)
    settle(plane, active_revision=1, failure_reason="why")
    assert describe(plane)["Specification"] == SPECIFICATION
    assert "LastDeploymentConfig" not in describe(plane)


def rolling(**more: Any) -> dict[str, Any]:
    size = {"Type": "COPY_COUNT", "Value": 1}
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 0, **more}}


def test_a_rolling_update_has_alarms_a_time_limit_and_batches_of_its_way_back(
    plane: SagemakerPlane,
) -> None:
    create(plane)
    settle(plane)
    back = {"Type": "CAPACITY_PERCENT", "Value": 100}
    config = rolling(MaximumExecutionTimeoutInSeconds=600, RollbackMaximumBatchSize=back)
    config["AutoRollbackConfiguration"] = {"Alarms": [{"AlarmName": "errors"}]}
    missing = update(plane, Specification=SPECIFICATION, DeploymentConfig=config)
    assert "alarms that do not exist: errors" in missing[1]["message"]
    put_alarms(plane, "errors")
    assert update(plane, Specification=SPECIFICATION, DeploymentConfig=config)[0] == 200
    target = plane.store(Store.describe_component, "chat").desired.target
    assert (target.alarms, target.batch_back) == (("errors",), 2)
    assert target.expires == plane.clock.wall() + 600


def test_the_record_of_a_component_that_goes_back_has_its_revisions_changed_over(
    plane: SagemakerPlane,
) -> None:
    create(plane)
    settle(plane)
    new = SPECIFICATION | {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 512}}
    update(plane, Specification=new, DeploymentConfig=rolling())
    for _ in range(2):  # what is done twice is done once
        settle(plane, "Updating", failure_reason="it rang", goes_back="it rang")
    desired = plane.store(Store.describe_component, "chat").desired
    assert (desired.active.number, desired.target.number) == (2, 1)
    assert (desired.target.goes_back, desired.status) == ("it rang", "Updating")
    assert describe(plane)["Specification"] == SPECIFICATION
    settle(plane, failure_reason="it rang", active_revision=1)
    described = describe(plane)
    assert (described["Specification"], described["FailureReason"]) == (SPECIFICATION, "it rang")
    assert plane.store(Store.describe_component, "chat").desired.active.number == 1


AGREEMENT = {"Key": "penstock:agreement", "Value": "exact disagree=0.02"}


@pytest.mark.parametrize("when", ["created", "later"])
def test_the_tag_of_a_component_is_read_with_its_new_specification(
    plane: SagemakerPlane, when: str
) -> None:
    tags = {"Tags": [AGREEMENT]}
    create(plane, **(tags if when == "created" else {}))
    settle(plane)
    if when == "later":
        assert plane.call("AddTags", ResourceArn=CHAT, **tags)[0] == 200
    status, answer = update(plane, Specification=SPECIFICATION)
    assert (status, "that has RollingUpdatePolicy" in answer["message"]) == (400, True)
    # A new count alone has nothing to compare.
    assert update(plane, RuntimeConfig={"CopyCount": 3})[0] == 200
    settle(plane)
    assert update(plane, Specification=SPECIFICATION, DeploymentConfig=rolling())[0] == 200
    target = plane.store(Store.describe_component, "chat").desired.target
    assert target.agreement == AgreementSpec(kind="exact", disagree_max=0.02)
    assert target.rollout == int(plane.clock.wall() * 1000)


def test_orders_for_a_component_are_recorded_until_its_end_is_decided(
    plane: SagemakerPlane,
) -> None:
    create(plane)
    settle(plane)

    def order(what: str, endpoint: str = "shop") -> str:
        now = plane.clock.wall()
        found = plane.store(Store.order_component_rollout, endpoint, "chat", what, now=now)
        assert found.desired.target is not None
        return str(found.desired.target.order)

    with pytest.raises(RolloutSettled, match="no update with RollingUpdatePolicy is under way"):
        order("abort")
    update(plane, Specification=SPECIFICATION)
    with pytest.raises(RolloutSettled, match="no update with RollingUpdatePolicy is under way"):
        order("abort")
    settle(plane, active_revision=2)
    update(plane, Specification=SPECIFICATION, DeploymentConfig=rolling())
    assert [order(one) for one in ("pause", "resume", "promote", "abort")] == [
        "pause", "", "promote", "abort",
    ]  # fmt: skip
    with pytest.raises(NotFound):
        order("abort", "other")
    settle(plane, "Updating", failure_reason="it rang", goes_back="it rang")
    with pytest.raises(RolloutSettled, match="it goes back already"):
        order("promote")


def test_what_goes_back_takes_no_order_of_its_own_rollout_along(plane: SagemakerPlane) -> None:
    create(plane)
    settle(plane)
    for number in (2, 3):
        update(plane, Specification=SPECIFICATION, DeploymentConfig=rolling())
        if number == 2:
            now = plane.clock.wall()
            plane.store(Store.order_component_rollout, "shop", "chat", "pause", now=now)
            settle(plane, active_revision=2)
    settle(plane, "Updating", failure_reason="it rang", goes_back="it rang")
    target = plane.store(Store.describe_component, "chat").desired.target
    assert (target.number, target.order) == (2, "")


def test_a_batch_is_within_the_bounds_of_its_kind(plane: SagemakerPlane) -> None:
    create(plane)
    settle(plane)
    for member, most in (("MaximumBatchSize", 50), ("RollbackMaximumBatchSize", 100)):
        config = rolling(**{member: {"Type": "CAPACITY_PERCENT", "Value": 4}})
        status, answer = update(plane, Specification=SPECIFICATION, DeploymentConfig=config)
        assert (status, f"between 5 and {most} percent" in answer["message"]) == (400, True)
    assert update(plane)[1]["message"] == "Give Specification, RuntimeConfig, or both."


def test_lists_name_endpoint_variant_and_status(plane: SagemakerPlane) -> None:
    create(plane)
    create(plane, "rank")
    _, page = plane.call("ListInferenceComponents", MaxResults=1, EndpointNameEquals="shop")
    (row,) = page["InferenceComponents"]
    assert (row["InferenceComponentName"], row["EndpointName"], row["EndpointArn"]) == (
        "rank", "shop", SHOP,
    )  # fmt: skip
    assert (row["VariantName"], row["InferenceComponentStatus"]) == ("blue", "Creating")
    _, rest = plane.call(
        "ListInferenceComponents", MaxResults=1, EndpointNameEquals="shop",
        NextToken=page["NextToken"],
    )  # fmt: skip
    assert [one["InferenceComponentName"] for one in rest["InferenceComponents"]] == ["chat"]
    _, none = plane.call("ListInferenceComponents", StatusEquals="Failed")
    assert none == {"InferenceComponents": []}


def test_component_model_and_endpoint_are_deleted_in_a_row_without_waiting(
    plane: SagemakerPlane,
) -> None:
    create(plane, Tags=[{"Key": "team", "Value": "a"}])
    create(plane, "rank")
    assert plane.call("ListTags", ResourceArn=CHAT)[1] == {"Tags": [{"Key": "team", "Value": "a"}]}
    assert plane.call("DeleteInferenceComponent", InferenceComponentName="chat") == (200, {})
    assert plane.call("DeleteModel", ModelName="chat") == (200, {})
    assert plane.call("DeleteEndpoint", EndpointName="shop") == (200, {})
    for name in ("chat", "rank"):
        assert describe(plane, name)["InferenceComponentStatus"] == "Deleting"
    status, answer = create(plane, "late")
    assert (status, answer["message"]) == (400, f'Could not find model "{ARN}:model/chat".')


def test_a_configuration_for_components_needs_a_role_and_variants_of_one_kind(
    plane: SagemakerPlane,
) -> None:
    status, answer = config(plane, "x", ExecutionRoleArn=None)
    assert (status, "needs ExecutionRoleArn" in answer["message"]) == (400, True)
    mixed = [VARIANT, VARIANT | {"VariantName": "own", "ModelName": "chat"}]
    status, answer = config(plane, "x", ProductionVariants=mixed)
    assert (status, "needs ModelName, as the others have" in answer["message"]) == (400, True)


@pytest.mark.parametrize(
    ("managed", "told"),
    [
        ({"Status": "ENABLED"}, "needs MaxInstanceCount"),
        ({"Status": "ENABLED", "MinInstanceCount": 3, "MaxInstanceCount": 2}, "is more than Max"),
        ({"Status": "ENABLED", "MaxInstanceCount": 2, "MinInstanceCount": -1}, "or equal to 0"),
    ],
)
def test_bounds_of_managed_instances_must_be_possible(
    plane: SagemakerPlane, managed: dict[str, Any], told: str
) -> None:
    variant = VARIANT | {"ManagedInstanceScaling": managed}
    status, answer = config(plane, "x", ProductionVariants=[variant])
    assert (status, told in answer["message"]) == (400, True)


def test_a_variant_with_a_model_has_no_managed_instances(plane: SagemakerPlane) -> None:
    managed = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2}
    variant = VARIANT | {"ModelName": "chat", "ManagedInstanceScaling": managed}
    status, answer = config(plane, "x", ProductionVariants=[variant])
    assert (status, "variants without ModelName" in answer["message"]) == (400, True)
    variant["ManagedInstanceScaling"] = {"Status": "DISABLED"}
    assert config(plane, "x", ProductionVariants=[variant])[0] == 200


def test_managed_instances_are_shown_and_follow_nobodys_count(plane: SagemakerPlane) -> None:
    managed = {
        "Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4,
        "ScaleInPolicy": {
            "Strategy": "CONSOLIDATION", "MaximumStepSize": 2, "CooldownInMinutes": 5,
        },
    }  # fmt: skip
    variant = VARIANT | {"ManagedInstanceScaling": managed}
    assert config(plane, "managed", ProductionVariants=[variant])[0] == 200
    plane.call("CreateEndpoint", EndpointName="m", EndpointConfigName="managed")
    in_service(plane, "m")
    plane.doorbell.counts = {"blue": 2}
    described = plane.call("DescribeEndpoint", EndpointName="m")[1]["ProductionVariants"][0]
    assert described["ManagedInstanceScaling"] == managed
    assert (described["DesiredInstanceCount"], described["CurrentInstanceCount"]) == (2, 2)
    status, answer = plane.call(
        "UpdateEndpointWeightsAndCapacities", EndpointName="m",
        DesiredWeightsAndCapacities=[{"VariantName": "blue", "DesiredInstanceCount": 3}],
    )  # fmt: skip
    assert (status, "follows the copies" in answer["message"]) == (400, True)


def test_an_endpoint_is_not_updated_to_where_its_components_have_no_place(
    plane: SagemakerPlane,
) -> None:
    create(plane)
    other = VARIANT | {"VariantName": "green"}
    assert config(plane, "green", ProductionVariants=[other])[0] == 200
    status, answer = plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="green")
    assert (status, "'chat' is on it. Delete the component first." in answer["message"]) == (
        400, True,
    )  # fmt: skip
    assert plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName="takes")[0] == 200
