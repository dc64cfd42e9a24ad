"""DeploymentConfig on the wire: what is refused, what is recorded, and what Describe shows of a
rollout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_operations import ARN, VARIANT, SagemakerPlane, error, in_service
from tests.control.test_alarm_rows import record as alarm_record

from penstock.control.alarms import rows as alarm_rows
from penstock.control.store.records import EndpointRecord
from penstock.control.store.store import Store
from penstock.core.rollout.policy import RolloutPolicy, RolloutProgress, RolloutSize

DONE = (200, {"EndpointArn": f"{ARN}:endpoint/shop"})
ALL_AT_ONCE = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 60}
CANARY = {
    "Type": "CANARY",
    "WaitIntervalInSeconds": 60,
    "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 25},
}
LINEAR = {
    "Type": "LINEAR",
    "WaitIntervalInSeconds": 60,
    "LinearStepSize": {"Type": "INSTANCE_COUNT", "Value": 1},
}
ROLLING = {
    "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50},
    "WaitIntervalInSeconds": 60,
}


def batch(kind: str, value: int) -> dict[str, Any]:
    return ROLLING | {"MaximumBatchSize": {"Type": kind, "Value": value}}


def config(routing: dict[str, Any] = CANARY, *alarms: str, **policy: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, **policy}
    }
    if alarms:
        named = [{"AlarmName": name} for name in alarms]
        given["AutoRollbackConfiguration"] = {"Alarms": named}
    return given


def sized(kind: str, value: int, routing: dict[str, Any] = CANARY) -> dict[str, Any]:
    member = "CanarySize" if routing is CANARY else "LinearStepSize"
    return config(routing | {member: {"Type": kind, "Value": value}})


def without(routing: dict[str, Any], member: str) -> dict[str, Any]:
    return config({key: value for key, value in routing.items() if key != member})


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    """Configuration `first` has a variant of 2 instances, `second` the same one of 4."""
    made = SagemakerPlane(tmp_path / "state")
    container = {"ModelDataUrl": "file:///models/shop"}
    assert made.call("CreateModel", ModelName="shop", PrimaryContainer=container)[0] == 200
    configure(made, "first", VARIANT)
    configure(made, "second", VARIANT | {"InitialInstanceCount": 4, "InitialVariantWeight": 2.0})
    yield made
    made.close()


def configure(plane: SagemakerPlane, name: str, *variants: dict[str, Any]) -> None:
    made = plane.call(
        "CreateEndpointConfig", EndpointConfigName=name, ProductionVariants=list(variants)
    )
    assert made[0] == 200


def create(plane: SagemakerPlane, **members: Any) -> tuple[int, dict[str, Any]]:
    return plane.call("CreateEndpoint", EndpointName="shop", EndpointConfigName="first", **members)


def update(plane: SagemakerPlane, to: str = "second", **members: Any) -> tuple[int, dict[str, Any]]:
    return plane.call("UpdateEndpoint", EndpointName="shop", EndpointConfigName=to, **members)


def served(plane: SagemakerPlane, **members: Any) -> None:
    assert create(plane, **members) == DONE
    in_service(plane)


def described(plane: SagemakerPlane) -> dict[str, Any]:
    status, answer = plane.call("DescribeEndpoint", EndpointName="shop")
    assert status == 200
    return answer


def stored(plane: SagemakerPlane) -> EndpointRecord:
    record: EndpointRecord = plane.store(Store.describe_endpoint, "shop")
    return record


def rollout(plane: SagemakerPlane) -> RolloutPolicy | None:
    target = stored(plane).target
    assert target is not None
    return target.rollout


def put_alarms(plane: SagemakerPlane, *names: str) -> None:
    def put(store: Store) -> None:
        with store.begin() as db:
            for name in names:
                alarm_rows.put(db, alarm_record(name), now=1.0)

    plane.store(put)


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        (None, None),
        (
            {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}},
            RolloutPolicy(alarms=("errors",)),
        ),
        (config(ALL_AT_ONCE), RolloutPolicy(wait_s=60.0)),
        (
            config(
                CANARY,
                "slow",
                "errors",
                TerminationWaitInSeconds=300,
                MaximumExecutionTimeoutInSeconds=600,
            ),
            RolloutPolicy(
                kind="CANARY",
                size=RolloutSize(kind="CAPACITY_PERCENT", value=25),
                wait_s=60.0,
                termination_wait_s=300.0,
                execution_s_max=600.0,
                alarms=("slow", "errors"),
            ),
        ),
        (
            config(LINEAR),
            RolloutPolicy(
                kind="LINEAR", size=RolloutSize(kind="INSTANCE_COUNT", value=1), wait_s=60.0
            ),
        ),
        (
            {
                "RollingUpdatePolicy": ROLLING
                | {
                    "RollbackMaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 4},
                    "MaximumExecutionTimeoutInSeconds": 600,
                },
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]},
            },
            RolloutPolicy(
                kind="ROLLING",
                size=RolloutSize(kind="CAPACITY_PERCENT", value=50),
                rollback_size=RolloutSize(kind="INSTANCE_COUNT", value=4),
                wait_s=60.0,
                execution_s_max=600.0,
                alarms=("errors",),
            ),
        ),
    ],
)
def test_an_update_is_rolled_out_as_its_deployment_config_says(
    plane: SagemakerPlane, given: dict[str, Any] | None, policy: RolloutPolicy | None
) -> None:
    put_alarms(plane, "errors", "slow")
    served(plane)
    assert update(plane, **({"DeploymentConfig": given} if given else {})) == DONE
    assert rollout(plane) == policy
    assert described(plane).get("LastDeploymentConfig") == given
    in_service(plane)
    assert described(plane).get("LastDeploymentConfig") == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (without(CANARY, "CanarySize"), "traffic routing of Type CANARY needs CanarySize."),
        (without(LINEAR, "LinearStepSize"), "traffic routing of Type LINEAR needs LinearStepSize."),
        (
            config(LINEAR | {"CanarySize": CANARY["CanarySize"]}),
            "CanarySize is for traffic routing of Type CANARY, and this is LINEAR.",
        ),
        (
            config(CANARY | {"LinearStepSize": LINEAR["LinearStepSize"]}),
            "LinearStepSize is for traffic routing of Type LINEAR, and this is CANARY.",
        ),
        (
            config(ALL_AT_ONCE | {"CanarySize": CANARY["CanarySize"]}),
            "CanarySize is for traffic routing of Type CANARY, and this is ALL_AT_ONCE.",
        ),
        (
            sized("CAPACITY_PERCENT", 51),
            "CanarySize is 51 percent; use at most 50 percent of the new instances.",
        ),
        (
            sized("INSTANCE_COUNT", 3),
            "CanarySize is 3 of 4 instances; use at most 50 percent of the new instances.",
        ),
        (
            sized("CAPACITY_PERCENT", 9, LINEAR),
            "LinearStepSize is 9 percent; use 10 to 50 percent of the new instances.",
        ),
        (
            sized("CAPACITY_PERCENT", 51, LINEAR),
            "LinearStepSize is 51 percent; use 10 to 50 percent of the new instances.",
        ),
        (
            sized("INSTANCE_COUNT", 5, LINEAR),
            "LinearStepSize is 5 of 4 instances; use 10 to 50 percent of the new instances.",
        ),
        (
            config() | {"RollingUpdatePolicy": ROLLING},
            "give either BlueGreenUpdatePolicy or RollingUpdatePolicy, not both.",
        ),
        (
            {"RollingUpdatePolicy": batch("CAPACITY_PERCENT", 4)},
            "MaximumBatchSize is 4 percent; use 5 to 50 percent of the new instances.",
        ),
        (
            {"RollingUpdatePolicy": batch("INSTANCE_COUNT", 3)},
            "MaximumBatchSize is 3 of 4 instances; use 5 to 50 percent of the new instances.",
        ),
        (
            {
                "RollingUpdatePolicy": ROLLING
                | {"RollbackMaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 5}}
            },
            "RollbackMaximumBatchSize is 5 of 4 instances; use 5 to 100 percent of the new"
            " instances.",
        ),
        (
            config(CANARY, "errors", "gone", "lost"),
            "AutoRollbackConfiguration names alarms that do not exist: gone, lost."
            " Create them with PutMetricAlarm first.",
        ),
        (
            config(CANARY, "errors", "errors"),
            "AutoRollbackConfiguration names alarm 'errors' twice.",
        ),
        (
            {"AutoRollbackConfiguration": {"Alarms": [{}]}},
            "each of AutoRollbackConfiguration's Alarms needs AlarmName.",
        ),
        (
            config(
                LINEAR | {"WaitIntervalInSeconds": 120},
                TerminationWaitInSeconds=120,
                MaximumExecutionTimeoutInSeconds=600,
            ),
            "MaximumExecutionTimeoutInSeconds is 600, and the waits alone take 600 s"
            " (4 times WaitIntervalInSeconds, and TerminationWaitInSeconds): it would always go"
            " back.",
        ),
    ],
)
def test_a_deployment_config_that_can_not_be_carried_out_is_refused(
    plane: SagemakerPlane, given: dict[str, Any], said: str
) -> None:
    put_alarms(plane, "errors")
    served(plane)
    before = stored(plane)
    assert update(plane, DeploymentConfig=given) == error(f"DeploymentConfig: {said}")
    assert stored(plane) == before
    made = plane.call(
        "CreateEndpoint", EndpointName="other", EndpointConfigName="second", DeploymentConfig=given
    )
    assert made == error(f"DeploymentConfig: {said}")
    assert plane.doorbell.rung == ["shop"]


@pytest.mark.parametrize(
    "given",
    [
        sized("CAPACITY_PERCENT", 50),
        sized("CAPACITY_PERCENT", 1),
        sized("INSTANCE_COUNT", 2),
        sized("CAPACITY_PERCENT", 10, LINEAR),
        sized("CAPACITY_PERCENT", 50, LINEAR),
        sized("INSTANCE_COUNT", 2, LINEAR),
        {"RollingUpdatePolicy": batch("CAPACITY_PERCENT", 5)},
        {"RollingUpdatePolicy": batch("INSTANCE_COUNT", 2)},
        config(
            LINEAR | {"WaitIntervalInSeconds": 120},
            TerminationWaitInSeconds=119,
            MaximumExecutionTimeoutInSeconds=600,
        ),
    ],
)
def test_the_bounds_themselves_are_allowed(plane: SagemakerPlane, given: dict[str, Any]) -> None:
    served(plane)
    assert update(plane, DeploymentConfig=given) == DONE


def test_a_step_is_at_least_a_tenth_of_the_instances_of_all_variants(
    plane: SagemakerPlane,
) -> None:
    many = VARIANT | {"InitialInstanceCount": 10}
    configure(plane, "wide", many, many | {"VariantName": "green", "InitialInstanceCount": 1})
    assert plane.call(
        "CreateEndpoint", EndpointName="shop", EndpointConfigName="wide",
        DeploymentConfig=config(LINEAR),
    ) == error(
        "DeploymentConfig: LinearStepSize is 1 of 11 instances; use 10 to 50 percent of the new"
        " instances."
    )  # fmt: skip


def test_parts_are_of_the_counts_that_an_update_retains(plane: SagemakerPlane) -> None:
    """`second` has 4 instances, and the endpoint has 2."""
    served(plane)
    two = sized("INSTANCE_COUNT", 2)
    assert update(plane, DeploymentConfig=two, RetainAllVariantProperties=True) == error(
        "DeploymentConfig: CanarySize is 2 of 2 instances; use at most 50 percent of the new"
        " instances."
    )
    assert update(plane, DeploymentConfig=two) == DONE


def test_a_part_of_the_traffic_moves_only_between_the_same_variants(plane: SagemakerPlane) -> None:
    green = VARIANT | {"VariantName": "green"}
    configure(plane, "both", VARIANT, green)
    configure(plane, "turned", green, VARIANT)
    served(plane)
    assert update(plane, "both", DeploymentConfig=config()) == error(
        "DeploymentConfig: traffic routing of Type CANARY needs the same variants before and"
        " after: blue serve, and 'both' has blue, green."
    )
    assert update(plane, "both", DeploymentConfig=config(ALL_AT_ONCE)) == DONE
    in_service(plane)
    assert update(plane, "turned", DeploymentConfig=config()) == DONE


def test_a_part_of_the_traffic_moves_only_where_callers_ask_in_the_same_way(
    plane: SagemakerPlane,
) -> None:
    many = {"ModelDataUrl": "s3://models/many/", "Mode": "MultiModel"}
    assert plane.call("CreateModel", ModelName="many", PrimaryContainer=many)[0] == 200
    configure(plane, "many", VARIANT | {"ModelName": "many"})
    served(plane)
    assert update(plane, "many", DeploymentConfig=config()) == error(
        "DeploymentConfig: traffic routing of Type CANARY needs callers to ask both generations in"
        " the same way: variant 'blue' has one model, and in 'many' it takes target models."
    )
    assert update(plane, "many", DeploymentConfig=config(ALL_AT_ONCE)) == DONE


def test_the_last_deployment_config_is_used_again_where_that_is_asked_for(
    plane: SagemakerPlane,
) -> None:
    """CreateEndpoint's counts as one, though the first instances replace none."""
    canary = RolloutPolicy(
        kind="CANARY", size=RolloutSize(kind="CAPACITY_PERCENT", value=25), wait_s=60.0
    )
    assert create(plane, DeploymentConfig=config()) == DONE
    assert rollout(plane) is None
    assert described(plane)["LastDeploymentConfig"] == config()
    in_service(plane)
    for to in ("second", "first"):
        assert update(plane, to, RetainDeploymentConfig=True) == DONE
        assert rollout(plane) == canary
        in_service(plane)
        assert described(plane)["LastDeploymentConfig"] == config()
    assert update(plane, RetainDeploymentConfig=False) == DONE
    assert rollout(plane) is None
    in_service(plane)
    assert "LastDeploymentConfig" not in described(plane)
    assert update(plane, RetainDeploymentConfig=True) == DONE
    assert rollout(plane) is None


def test_a_deployment_config_is_either_given_or_retained(plane: SagemakerPlane) -> None:
    served(plane, DeploymentConfig=config())
    both = update(plane, DeploymentConfig=config(ALL_AT_ONCE), RetainDeploymentConfig=True)
    assert both == error("Give either DeploymentConfig or RetainDeploymentConfig, not both.")
    assert update(plane, DeploymentConfig=config(), RetainDeploymentConfig=False) == DONE


def test_a_retained_deployment_config_is_checked_again(plane: SagemakerPlane) -> None:
    """Its alarms may be gone, and the new configuration may have other counts."""
    put_alarms(plane, "errors")
    served(plane, DeploymentConfig=config(CANARY, "errors"))

    def delete(store: Store) -> None:
        with store.begin() as db:
            alarm_rows.remove(db, ["errors"], now=2.0)

    plane.store(delete)
    status, answer = update(plane, RetainDeploymentConfig=True)
    assert (status, "do not exist: errors." in answer["message"]) == (400, True)
    assert update(plane) == DONE


def test_a_second_update_waits_for_the_rollout(plane: SagemakerPlane) -> None:
    served(plane)
    assert update(plane, DeploymentConfig=config()) == DONE
    busy = error(f'Cannot update in-progress endpoint "{ARN}:endpoint/shop".')
    assert update(plane, "first") == busy
    assert rollout(plane) is not None


def test_describe_shows_how_far_a_rollout_is(plane: SagemakerPlane) -> None:
    served(plane)
    plane.doorbell.counts = {"blue": 2}
    assert update(plane, DeploymentConfig=config()) == DONE

    def shown(progress: RolloutProgress | None) -> tuple[Any, ...]:
        """(CurrentWeight, VariantStatus) of the old variant and of the new one; StartTime."""
        if progress is not None:
            plane.store(Store.set_rollout, "shop", 2, progress, now=plane.clock.wall())
        told = described(plane)
        assert (told["EndpointStatus"], told["EndpointConfigName"]) == ("Updating", "first")
        pending = told["PendingDeploymentSummary"]
        (old,), (new,) = told["ProductionVariants"], pending["ProductionVariants"]
        assert (old["DesiredWeight"], new["DesiredWeight"]) == (1.0, 2.0)
        statuses = [one.get("VariantStatus") for one in (old, new)]
        return old["CurrentWeight"], statuses[0], new["CurrentWeight"], statuses[1], pending[
            "StartTime"
        ]  # fmt: skip

    def status(name: str, since: float) -> list[dict[str, Any]]:
        return [{"Status": name, "StartTime": since}]

    began = plane.clock.wall()
    assert shown(None) == (1.0, status("Updating", began), 0.0, status("Creating", began), began)
    creating = RolloutProgress(stage="creating", began=10.0, since=10.0)
    assert shown(creating) == (1.0, status("Updating", 10.0), 0.0, status("Creating", 10.0), 10.0)
    canary = RolloutProgress(stage="baking", began=10.0, since=20.0, step=1, share=0.25)
    assert shown(canary) == (0.75, status("Updating", 10.0), 0.5, status("Baking", 20.0), 10.0)
    whole = RolloutProgress(stage="baking", began=10.0, since=80.0, step=2, share=1.0)
    assert shown(whole) == (0.0, status("Updating", 10.0), 2.0, status("Baking", 80.0), 10.0)
    ending = RolloutProgress(stage="terminating", began=10.0, since=140.0, step=2, share=1.0)
    assert shown(ending) == (0.0, status("Deleting", 140.0), 2.0, None, 10.0)
    in_service(plane)
    told = described(plane)
    assert "PendingDeploymentSummary" not in told
    (variant,) = told["ProductionVariants"]
    assert (variant["CurrentWeight"], "VariantStatus" in variant) == (2.0, False)


def test_a_rollout_that_goes_back_is_shown_so_and_is_not_over(plane: SagemakerPlane) -> None:
    served(plane)
    assert update(plane, DeploymentConfig={"RollingUpdatePolicy": ROLLING}) == DONE
    back = RolloutProgress(
        stage="rolling-back", began=10.0, since=20.0, step=1, share=0.5, why="in ALARM: errors"
    )
    plane.store(Store.set_rollout, "shop", 2, back, now=plane.clock.wall())
    shown = described(plane)
    assert shown["EndpointStatus"] == "RollingBack"
    [listed] = plane.call("ListEndpoints")[1]["Endpoints"]
    assert listed["EndpointStatus"] == "RollingBack"
    (pending,) = shown["PendingDeploymentSummary"]["ProductionVariants"]
    assert [one["Status"] for one in pending["VariantStatus"]] == ["Deleting"]
    assert update(plane) == error(f'Cannot update in-progress endpoint "{ARN}:endpoint/shop".')


def test_an_endpoint_that_is_deleted_during_a_rollout_is_shown_deleting(
    plane: SagemakerPlane,
) -> None:
    served(plane)
    assert update(plane, DeploymentConfig=config()) == DONE
    canary = RolloutProgress(stage="baking", began=10.0, since=20.0, step=1, share=0.25)
    plane.store(Store.set_rollout, "shop", 2, canary, now=plane.clock.wall())
    assert plane.call("DeleteEndpoint", EndpointName="shop") == (200, {})
    told = described(plane)
    (variant,) = told["ProductionVariants"]
    assert variant["VariantStatus"] == [
        {"Status": "Deleting", "StartTime": told["LastModifiedTime"]}
    ]
