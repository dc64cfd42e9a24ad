"""Targets, policies, schedules and activities on each database; what is written together."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.control.alarms import rows as alarm_rows
from penstock.control.alarms.records import AlarmActions, AlarmQuery, AlarmRecord
from penstock.control.scaling import calls, loading, writing
from penstock.control.scaling.records import (
    BoundsCross,
    NoSuchPolicy,
    NoSuchScheduledAction,
    NoSuchTarget,
    PolicyRecord,
    ResourceMissing,
    ScheduledActionRecord,
    TargetRecord,
)
from penstock.control.store.store import Store
from penstock.core.alarms.spec import AlarmSpec, MetricQuery, MetricStat
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.scaling.actions import RunSchedule, SetCapacity, TellNotScaled
from penstock.core.scaling.activity import NotScaled
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.spec import (
    VARIANT,
    StepAdjustment,
    StepPolicy,
    Suspended,
    TrackingPolicy,
)

RESOURCE = "endpoint/chat/variant/all"
KEY = RESOURCE, VARIANT
STEP = StepPolicy(
    name="step",
    arn="arn:step",
    adjustment_type="ChangeInCapacity",
    steps=(StepAdjustment(0.0, None, 1), StepAdjustment(None, 0.0, -1)),
    magnitude_min=2,
)
TRACK = TrackingPolicy(name="track", arn="arn:track", target_value=5.0, of_concurrency=True)


def endpoint(store: Store, count: int = 1) -> None:
    variant = VariantSpec(
        name="all",
        model=ModelSource(model_name="m"),
        instance_type="ml.local.small",
        instance_count=count,
    )
    deployment = DeploymentSpec(endpoint="chat", generation=1, config_name="c", variants=(variant,))
    store.create_endpoint("chat", deployment, arn="chat", now=1.0)
    store.set_status("chat", "InService", now=2.0, active_generation=1)


def count(store: Store) -> tuple[int, str]:
    """The recorded count, and the endpoint's status."""
    record = store.describe_endpoint("chat")
    assert record.active is not None
    return record.active.variants[0].instance_count, record.status


def register(store: Store, low: int = 1, high: int = 9, **more: Any) -> TargetRecord:
    record, _ = calls.register(
        store,
        calls.Registration(
            resource_id=RESOURCE, dimension=VARIANT, capacity_min=low, capacity_max=high, **more
        ),
        arn="arn:target",
        role_arn="arn:role",
        activity_id=f"bounds-{low}-{high}",
        now=10.0,
    )
    return record


def put(store: Store, policy: StepPolicy | TrackingPolicy, *alarms: AlarmRecord) -> PolicyRecord:
    kind = "StepScaling" if isinstance(policy, StepPolicy) else "TargetTrackingScaling"
    record = PolicyRecord(
        resource_id=RESOURCE, dimension=VARIANT, policy=policy, kind=kind, request={"a": [1]},
        created=11.0,
    )  # fmt: skip
    return calls.put_policy(store, record, alarms, now=11.0)


def alarm(name: str = "high") -> AlarmRecord:
    stat = MetricStat(namespace="N", name="M", dimensions=(), period_s=10, stat="Sum")
    return AlarmRecord(
        spec=AlarmSpec(
            name=name, queries=(MetricQuery(id="", stat=stat),), period_s=10, threshold=1.0,
            evaluation_periods=1, datapoints_to_alarm=1, comparison="GreaterThanThreshold",
        ),
        arn=f"arn:{name}",
        actions=AlarmActions(alarm=("arn:track",)),
        owner="arn:track",
    )  # fmt: skip


def alarms(store: Store) -> list[str]:
    with store.read() as db:
        return [one.name for one in alarm_rows.listed(db, AlarmQuery())]


def asked(was: int, to: int, **more: Any) -> SetCapacity:
    return SetCapacity(was=was, to=to, reason="step-scaling", cause="an alarm", **more)


def test_a_target_comes_back_as_it_was_registered(store: Store) -> None:
    endpoint(store)
    made = register(store, suspended={"scale_in": True}, tags={loading.FAST_TAG: "true"})
    assert calls.targets(store) == [made]
    assert made.spec.suspended == Suspended(scale_in=True)
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    assert loaded.spec.target.fast
    again = register(store, 2, 5)
    assert (again.arn, again.created) == (made.arn, made.created)
    assert (again.spec.capacity_min, again.spec.capacity_max) == (2, 5)
    assert again.spec.suspended == Suspended(scale_in=True)
    with pytest.raises(BoundsCross):
        register(store, 6, 5)


def test_what_is_not_there_can_not_be_registered(store: Store) -> None:
    with pytest.raises(ResourceMissing):
        register(store)
    with pytest.raises(NoSuchTarget):
        calls.deregister(store, *KEY, now=1.0)


def test_policies_come_back_as_they_were_put(store: Store) -> None:
    endpoint(store)
    register(store)
    put(store, STEP)
    put(store, TRACK)
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    assert loaded.spec.policies == (STEP, TRACK)
    found = calls.policies(store)
    assert [(one.policy.name, one.request) for one in found] == [
        ("step", {"a": [1]}),
        ("track", {"a": [1]}),
    ]
    (short,) = loading.load_targets(store, fast=True, cooldown_s_max=5.0)
    assert {one.cooldown_s for one in short.spec.policies if isinstance(one, StepPolicy)} == {5.0}
    assert short.spec.tracking()[0].scale_in_cooldown_s == 5.0


def test_a_policy_and_its_alarms_live_and_die_together(store: Store) -> None:
    endpoint(store)
    register(store)
    made = put(store, TRACK, alarm("high"), alarm("low"))
    assert made.alarms == (("high", "arn:high"), ("low", "arn:low"))
    assert put(store, TRACK, alarm("other")).alarms == (("other", "arn:other"),)
    assert alarms(store) == ["other"]
    calls.delete_policy(store, *KEY, "track", now=12.0)
    assert alarms(store) == []
    with pytest.raises(NoSuchPolicy):
        calls.delete_policy(store, *KEY, "track", now=12.0)
    put(store, TRACK, alarm())
    calls.deregister(store, *KEY, now=13.0)
    assert alarms(store) == []
    assert calls.policies(store) == []


def test_nothing_is_written_of_a_policy_whose_alarm_can_not_be(store: Store) -> None:
    endpoint(store)
    register(store)

    class Broken(Exception):
        pass

    class Unreadable(AlarmRecord):
        @property
        def name(self) -> str:
            raise Broken

    broken = alarm("second")
    bad = Unreadable(spec=broken.spec, arn=broken.arn, owner=broken.owner)
    with pytest.raises(Broken):
        put(store, TRACK, alarm("first"), bad)
    assert alarms(store) == []
    assert calls.policies(store) == []


def test_schedules_come_back_as_they_were_put(store: Store) -> None:
    endpoint(store)
    register(store)
    record = ScheduledActionRecord(
        resource_id=RESOURCE, dimension=VARIANT, name="s", arn="arn:s", timezone="Europe/Berlin",
        schedule="cron(0 8 * * ? *)", created=11.0, starts=12.0, capacity_min=3, due=99.0,
    )  # fmt: skip
    calls.put_schedule(store, record)
    assert calls.schedules(store) == [record]
    assert calls.schedule_of(store, *KEY, "s") == record
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    ((action, due),) = loaded.schedules
    assert (action.name, action.timetable.since, action.capacity_min, due) == ("s", 12.0, 3, 99.0)
    calls.delete_schedule(store, *KEY, "s")
    with pytest.raises(NoSuchScheduledAction):
        calls.delete_schedule(store, *KEY, "s")


def test_a_count_and_its_activity_are_written_together(store: Store) -> None:
    endpoint(store)
    register(store)
    change = asked(1, 4, cooldown_s=60.0, base=1)
    done = writing.set_capacity(store, KEY, change, None, activity_id="a", now=20.0)
    assert done == writing.Written(endpoint="chat", activity_id="a")
    assert count(store) == (4, "Updating")
    (activity,) = calls.activities(store, limit=9)
    assert (activity.status, activity.started, activity.ended) == ("InProgress", 20.0, None)
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    assert (loaded.last, loaded.open_activity) == (
        Scaled(was=1, to=4, ended=None, cooldown_s=60.0),
        "a",
    )
    writing.settle(store, "a", "Successful", "done", now=25.0)
    writing.settle(store, "a", "Failed", "too late", now=26.0)  # it has ended
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    assert loaded.last == Scaled(was=1, to=4, ended=25.0, cooldown_s=60.0)
    assert loaded.open_activity == ""


def test_a_count_that_changed_meanwhile_is_not_written_over(store: Store) -> None:
    endpoint(store, 2)
    register(store)
    done = writing.set_capacity(store, KEY, asked(1, 4), None, activity_id="a", now=20.0)
    assert done == writing.NOTHING
    assert count(store) == (2, "InService")
    assert calls.activities(store, limit=9) == []


def test_a_larger_count_on_the_way_overrides_and_keeps_what_to_go_back_to(store: Store) -> None:
    """The first change is still being reached; out of reach is back to the count before both."""
    endpoint(store)
    register(store)
    for number, change in enumerate((asked(1, 2), asked(2, 5))):
        done = writing.set_capacity(
            store, KEY, change, None, activity_id=str(number), now=20.0 + number
        )
        assert done.endpoint == "chat"
    newest, first = calls.activities(store, limit=9)
    assert (newest.status, first.status) == ("InProgress", "Overridden")
    assert (
        first.message == "The desired instance count of 2 was replaced by 5 before it was reached."
    )
    previous = store.describe_endpoint("chat").previous
    assert previous is not None
    assert previous.variants[0].instance_count == 1


def test_a_rollout_is_not_disturbed(store: Store) -> None:
    endpoint(store)
    register(store)
    active = store.describe_endpoint("chat").active
    assert active is not None
    store.begin_update("chat", active, now=15.0)
    key = register(store).key
    _, counts = loading.counts_since(store, None)
    found = (counts or {})[key]
    assert found is not None
    assert not found.scalable
    done = writing.set_capacity(store, KEY, asked(1, 4), None, activity_id="a", now=20.0)
    assert done == writing.NOTHING


def test_a_count_may_be_zero(store: Store) -> None:
    endpoint(store)
    register(store, 0)
    writing.set_capacity(store, KEY, asked(1, 0), None, activity_id="a", now=20.0)
    assert count(store) == (0, "Updating")


def test_a_schedule_moves_bounds_count_and_its_next_time_at_once(store: Store) -> None:
    endpoint(store)
    register(store)
    record = ScheduledActionRecord(
        resource_id=RESOURCE, dimension=VARIANT, name="s", arn="arn:s", timezone="UTC",
        schedule="rate(1 hour)", created=11.0, capacity_min=3, due=20.0,
    )  # fmt: skip
    calls.put_schedule(store, record)
    ran = RunSchedule(
        name="s", reason="schedule-due", next_due=3620.0, capacity_min=3, scale=asked(1, 3)
    )
    done = writing.run_schedule(store, KEY, ran, ids=("moved", "scaled"), now=20.0)
    assert done.activity_id == "scaled"
    assert count(store)[0] == 3
    assert calls.schedules(store)[0].due == 3620.0
    assert calls.targets(store)[0].spec.capacity_min == 3
    assert [one.id for one in calls.activities(store, limit=9)] == ["scaled", "moved"]


def test_what_did_not_scale_is_shown_where_it_is_asked_for(store: Store) -> None:
    endpoint(store)
    register(store)
    why = NotScaled(code="AlreadyAtMaxCapacity", capacity_min=1, capacity_max=9, capacity=9)
    told = TellNotScaled(reason="at-max-capacity", cause="an alarm", not_scaled=why)
    writing.tell_not_scaled(store, KEY, told, activity_id="a", now=20.0)
    assert calls.activities(store, limit=9) == []
    (shown,) = calls.activities(store, not_scaled=True, limit=9)
    assert (shown.not_scaled, shown.status, shown.details) == (why, "Failed", "at-max-capacity")
    (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
    assert loaded.last is None
