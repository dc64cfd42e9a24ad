"""One bad target or policy costs only itself: the others are scaled in the same round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.kit.scaling import VARIANT, ScalingSite

from penstock.control.database import schema
from penstock.control.scaling import loading
from penstock.control.store.store import Store
from penstock.core.scaling.machine import TargetScaler
from penstock.metrics import item_failures


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScalingSite]:
    made = ScalingSite(tmp_path)
    for name in ("a-bad", "witness"):
        made.endpoint(name)
        resource = f"endpoint/{name}/variant/all"
        client = made.client()
        client.register_scalable_target(
            **(VARIANT | {"ResourceId": resource}), MinCapacity=1, MaxCapacity=9
        )
        client.put_scaling_policy(
            **(VARIANT | {"ResourceId": resource}),
            PolicyName="step",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        )
        client.put_scheduled_action(
            **(VARIANT | {"ResourceId": resource}),
            ScheduledActionName="soon",
            Schedule="at(2023-11-14T22:14:10)",
            ScalableTargetAction={"MinCapacity": 3},
        )
    yield made
    made.close()


def spoil(store: Store, table: str, column: str, text: str) -> None:
    found = schema.metadata.tables[table]
    key = found.c.key if "key" in found.c else found.c.target_key
    with store.begin() as db:
        db.execute(update(found).where(key.like("%a-bad%")).values({column: text}))


def reopened(site: ScalingSite) -> None:
    """As after a restart: everything is read again."""
    site.driver._targets.clear()
    site.driver.changed()


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("scaling_policies", "spec"),
        ("scaling_policies", "request"),
        ("scalable_targets", "suspended"),
        ("scheduled_actions", "schedule"),
        ("scheduled_actions", "timezone"),
        ("deployments", "spec"),
    ],
)
@pytest.mark.parametrize("text", ["", "{", "[7]", '"9"'])
def test_a_row_that_can_not_be_read_spoils_only_itself(
    site: ScalingSite, table: str, column: str, text: str
) -> None:
    before = sum(item_failures.counts().values())
    if table == "deployments":
        site.call(spoil_deployment, text)
    else:
        site.call(spoil, table, column, text)
    reopened(site)
    site.run(seconds(site, 20))
    assert site.count("witness") == 3
    if text == "{":  # some of the others are JSON, and no more than odd
        assert sum(item_failures.counts().values()) > before
    client = site.client()
    described = client.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert len(described) == 2
    client.delete_scaling_policy(
        **(VARIANT | {"ResourceId": "endpoint/a-bad/variant/all"}), PolicyName="step"
    )


def test_an_activity_that_can_not_be_read_is_left_out(site: ScalingSite) -> None:
    site.run(seconds(site, 20))
    site.call(spoil, "scaling_activities", "change", "{")
    reopened(site)
    client = site.client()
    told = client.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"]
    assert {one["ResourceId"] for one in told if "NotScaled" not in one} >= {
        "endpoint/witness/variant/all"
    }
    client.put_scheduled_action(
        **(VARIANT | {"ResourceId": "endpoint/witness/variant/all"}),
        ScheduledActionName="later",
        Schedule="at(2023-11-14T22:14:40)",
        ScalableTargetAction={"MinCapacity": 5},
    )
    site.run(seconds(site, 30))
    assert site.count("witness") == 5
    assert site.run(explained(site, "witness"))[0]["capacity"] == 5


def spoil_deployment(store: Store, text: str) -> None:
    with store.begin() as db:
        table = schema.deployments
        db.execute(update(table).where(table.c.endpoint_key == "a-bad").values(spec=text))


async def seconds(site: ScalingSite, count: int) -> None:
    for _ in range(count):
        site.clock.advance(1.0)
        await site.driver.tick()


def test_a_turn_that_fails_leaves_the_others_theirs(
    site: ScalingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = TargetScaler.on_observed

    def fails(scaler: TargetScaler, *args: object) -> object:
        if "a-bad" in scaler._spec.target.resource_id:
            raise ZeroDivisionError("float division by zero")
        return observe(scaler, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TargetScaler, "on_observed", fails)
    before = item_failures.counts().get(loading.LOOP, 0)
    site.run(seconds(site, 20))
    assert site.count("witness") == 3
    assert item_failures.counts()[loading.LOOP] > before
    (story,) = site.run(explained(site, "a-bad"))
    assert (story["fault"], story["policies"][0]["fault"]) == ("an internal error occurred", "")
    monkeypatch.undo()
    site.run(seconds(site, 2))
    (story,) = site.run(explained(site, "a-bad"))
    assert story["fault"] == ""


async def explained(site: ScalingSite, name: str) -> list[dict[str, object]]:
    return await site.scaling.explain(name, None)
