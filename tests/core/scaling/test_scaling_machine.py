"""The machine of a target: literal timelines of alarms, cooldowns, bounds and activities."""

from __future__ import annotations

from tests.kit.core_scaling import (
    accept,
    asked,
    fired,
    low,
    scaler,
    seen,
    steps,
    tracking,
    watch,
)

from penstock.core.scaling.actions import SetCapacity, SettleActivity, TellNotScaled
from penstock.core.scaling.activity import NotScaled
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.spec import Suspended

OUT_CAUSE = "monitor alarm track-AlarmHigh in state ALARM triggered policy track"


def reach(machine, at: float, capacity: int) -> list:  # type: ignore[no-untyped-def, type-arg]
    """The count is seen to be reached."""
    return machine.on_observed(seen(at, capacity))


def test_an_alarm_becomes_a_count_and_an_activity_with_awss_words() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    actions = machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1))
    assert actions == [
        SetCapacity(
            was=1,
            to=4,
            reason="target-tracking",
            cause=OUT_CAUSE,
            policy="track",
            cooldown_s=180.0,
            base=1,
        )
    ]
    assert accept(machine, actions, "first") == []
    assert watch(machine, 61, 65, 4, ready=1) == []
    assert reach(machine, 65.0, 4) == [
        SettleActivity(
            activity_id="first",
            status="Successful",
            message=(
                "Successfully set desired instance count to 4. Change successfully fulfilled by"
                " sagemaker."
            ),
            reason="capacity-reached",
        )
    ]
    machine.check_invariants()


def test_a_larger_scale_out_goes_on_during_the_cooldown_and_a_smaller_one_does_not() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    accept(machine, machine.on_alarm(fired("track", 10.0, at=60.0), seen(60.0, 1)))
    reach(machine, 62.0, 2)
    watch(machine, 63, 100, 2)
    assert machine.on_alarm(fired("track", 4.0, at=100.0), seen(100.0, 2)) == [
        TellNotScaled(
            reason="capacity-is-coming",
            cause=OUT_CAUSE,
            not_scaled=NotScaled(
                code="AlreadyAtDesiredCapacity", capacity_min=1, capacity_max=10, capacity=2
            ),
        )
    ]
    larger = machine.on_alarm(fired("track", 10.0, at=101.0), seen(101.0, 2))
    assert asked(larger) == [(2, 4, "target-tracking")]


def test_a_steps_cooldown_counts_what_was_added_as_part_of_the_next_step() -> None:
    """AWS's example: +2 was added to 10; +3 during the cooldown adds one more, to 13."""
    machine = scaler(steps((0, 10, 2), (10, None, 3)), high=20)
    watch(machine, 0, 60, 10)
    first = machine.on_alarm(fired("step", 9.0, at=60.0), seen(60.0, 10))
    assert asked(first) == [(10, 12, "step-scaling")]
    accept(machine, first)
    reach(machine, 61.0, 12)
    assert asked(machine.on_alarm(fired("step", 9.0, at=90.0), seen(90.0, 12))) == []
    larger = machine.on_alarm(fired("step", 16.0, at=91.0), seen(91.0, 12))
    assert asked(larger) == [(12, 13, "step-scaling")]
    accept(machine, larger)
    reach(machine, 92.0, 13)
    assert asked(machine.on_alarm(fired("step", 16.0, at=93.0), seen(93.0, 13))) == []
    after = machine.on_alarm(fired("step", 16.0, at=152.0), seen(152.0, 13))  # 60 s after 92.0
    assert asked(after) == [(13, 16, "step-scaling")]


def test_nothing_comes_in_while_a_scale_out_is_under_way_or_cools() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    accept(machine, machine.on_alarm(fired("track", 10.0, at=60.0), seen(60.0, 1)))
    reach(machine, 70.0, 2)
    watch(machine, 71, 249, 2)
    assert machine.on_alarm(low("track", 0.0, at=249.0), seen(249.0, 2)) == []
    assert machine.decisions()[-1].reason == "scale-out-cooldown"
    actions = machine.on_alarm(low("track", 0.0, at=250.0), seen(250.0, 2))
    assert asked(actions) == [(2, 1, "target-tracking")]


def test_a_scale_in_waits_for_the_one_before_and_a_scale_out_does_not() -> None:
    machine = scaler(tracking(scale_in_cooldown_s=100.0))
    watch(machine, 0, 200, 4)
    first = machine.on_alarm(low("track", 3.0, at=200.0), seen(200.0, 4))
    assert asked(first) == [(4, 3, "target-tracking")]
    accept(machine, first)
    reach(machine, 201.0, 3)
    watch(machine, 202, 300, 3)
    assert machine.on_alarm(low("track", 1.0, at=300.0), seen(300.0, 3)) == []
    assert machine.decisions()[-1].reason == "scale-in-cooldown"
    out = machine.on_alarm(fired("track", 8.0, at=300.5), seen(300.5, 3))
    assert asked(out) == [(3, 5, "target-tracking")]


def test_cooldowns_are_seconds_however_often_the_machine_is_asked() -> None:
    """Delays that are counted in turns of a loop shrink when the loop turns faster (Ray 62004)."""
    slow, quick = scaler(tracking()), scaler(tracking())
    for machine, step_s in ((slow, 10.0), (quick, 0.01)):
        machine.restore(Scaled(was=1, to=3, ended=0.0, cooldown_s=180.0))
        at = 0.0
        while at < 179.9:
            machine.on_observed(seen(at, 3))
            at += step_s
        assert machine.on_alarm(low("track", 0.0, at=179.9), seen(179.9, 3)) == []
        came_in = machine.on_alarm(low("track", 0.0, at=180.0), seen(180.0, 3))
        assert asked(came_in) == [(3, 1, "target-tracking")]


def test_the_largest_wish_wins_out() -> None:
    machine = scaler(tracking("a"), tracking("b", 100.0))
    watch(machine, 0, 60, 2)
    machine.on_observed(seen(59.5, 2))
    small = machine.on_alarm(fired("a", 6.0, at=60.0), seen(60.0, 2))
    assert asked(small) == [(2, 3, "target-tracking")]
    accept(machine, small)
    large = machine.on_alarm(fired("b", 400.0, at=61.0), seen(61.0, 3, ready=2))
    assert asked(large) == [(3, 8, "target-tracking")]
    assert large[0].cause == "monitor alarm b-AlarmHigh in state ALARM triggered policy b"  # type: ignore[union-attr]


def test_coming_in_takes_all_policies_and_the_largest_of_their_wishes() -> None:
    machine = scaler(tracking("a"), tracking("b"))
    watch(machine, 0, 300, 8)
    alone = machine.on_alarm(low("a", 1.0, at=300.0), seen(300.0, 8))
    assert alone == [
        TellNotScaled(
            reason="not-all-policies-agree",
            cause="monitor alarm a-AlarmLow in state ALARM triggered policy a",
            not_scaled=NotScaled(
                code="AutoScalingAnticipatedFlapping",
                capacity_min=1,
                capacity_max=10,
                capacity=8,
            ),
        )
    ]
    both = machine.on_alarm(low("b", 3.0, at=305.0), seen(305.0, 8))
    assert asked(both) == [(8, 5, "target-tracking")]  # a would have 2


def test_a_wish_whose_alarm_no_longer_fires_does_not_count() -> None:
    machine = scaler(tracking("a"), tracking("b"))
    watch(machine, 0, 300, 8)
    machine.on_alarm(low("a", 1.0, at=300.0), seen(300.0, 8))
    late = machine.on_alarm(low("b", 1.0, at=320.0), seen(320.0, 8))
    assert asked(late) == []


def test_a_policy_that_may_not_scale_in_is_not_asked() -> None:
    machine = scaler(tracking("a"), tracking("b", disable_scale_in=True))
    watch(machine, 0, 300, 8)
    assert asked(machine.on_alarm(low("a", 1.0, at=300.0), seen(300.0, 8))) == [
        (8, 2, "target-tracking")
    ]


def test_a_step_policy_comes_in_by_itself() -> None:
    machine = scaler(tracking("a"), steps((None, 0, -1)))
    watch(machine, 0, 300, 8)
    alarm = low("step", 1.0, at=300.0)
    assert asked(machine.on_alarm(alarm, seen(300.0, 8))) == [(8, 7, "step-scaling")]


def test_an_alarm_of_another_target_is_passed_over() -> None:
    machine = scaler(tracking())
    assert machine.on_alarm(fired("stranger", 50.0), seen(0.0, 1)) == []
    assert machine.decisions() == []


def test_policies_stay_within_the_bounds_and_say_so_once() -> None:
    machine = scaler(tracking(), low=2, high=3)
    watch(machine, 0, 300, 3)
    full = machine.on_alarm(fired("track", 50.0, at=300.0), seen(300.0, 3))
    assert full == [
        TellNotScaled(
            reason="at-max-capacity",
            cause=OUT_CAUSE,
            not_scaled=NotScaled(
                code="AlreadyAtMaxCapacity", capacity_min=2, capacity_max=3, capacity=3
            ),
        )
    ]
    assert machine.on_alarm(fired("track", 60.0, at=310.0), seen(310.0, 3)) == []
    watch(machine, 311, 600, 2)
    (told,) = machine.on_alarm(low("track", 0.0, at=600.0), seen(600.0, 2))
    assert isinstance(told, TellNotScaled)
    assert (told.reason, told.not_scaled.code) == ("at-min-capacity", "AlreadyAtMinCapacity")


def test_a_count_that_was_set_by_hand_beyond_the_bounds_stays() -> None:
    """Bounds are of policies: nine by hand are not brought down to five by a wish for twelve."""
    machine = scaler(tracking(), high=5)
    watch(machine, 0, 60, 9)
    (told,) = machine.on_alarm(fired("track", 6.0, at=60.0), seen(60.0, 9))
    assert isinstance(told, TellNotScaled)
    assert told.reason == "at-max-capacity"


def test_coming_in_would_exceed_the_target() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 300, 2)
    (told,) = machine.on_alarm(low("track", 4.4, at=300.0), seen(300.0, 2))
    assert isinstance(told, TellNotScaled)
    assert told.not_scaled.code == "AutoScalingAnticipatedFlapping"
    assert told.reason == "would-exceed-target"


def test_what_is_suspended_does_not_happen() -> None:
    no_out = scaler(tracking(), suspended=Suspended(scale_out=True))
    watch(no_out, 0, 300, 2)
    assert no_out.on_alarm(fired("track", 50.0, at=300.0), seen(300.0, 2)) == []
    assert no_out.capacity_wanted(seen(301.0, 0)) == []
    came_in = no_out.on_alarm(low("track", 0.0, at=600.0), seen(600.0, 2))
    assert asked(came_in) == [(2, 1, "target-tracking")]
    no_in = scaler(tracking(), suspended=Suspended(scale_in=True))
    watch(no_in, 0, 300, 2)
    assert no_in.on_alarm(low("track", 0.0, at=300.0), seen(300.0, 2)) == []
    assert no_in.decisions()[-1].reason == "scale-in-suspended"
    assert asked(no_in.on_alarm(fired("track", 50.0, at=310.0), seen(310.0, 2))) != []


def test_a_rollout_is_not_disturbed() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    (told,) = machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1, scalable=False))
    assert isinstance(told, TellNotScaled)
    assert (told.reason, told.not_scaled.code) == (
        "update-in-progress",
        "TargetServicePutResourceAsUnscalable",
    )


def test_what_was_out_of_reach_is_not_asked_for_again_at_once() -> None:
    machine = scaler(tracking(scale_out_cooldown_s=0.0))
    watch(machine, 0, 60, 1)
    accept(machine, machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1)), "wide")
    failed = machine.on_observed(seen(70.0, 1, failure="CapacityError: the machine is full"))
    assert failed == [
        SettleActivity(
            activity_id="wide",
            status="Failed",
            message=(
                "Failed to set desired instance count to 4. Reason: CapacityError: the machine is"
                " full"
            ),
            reason="capacity-out-of-reach",
        )
    ]
    again = machine.on_alarm(fired("track", 20.0, at=80.0), seen(80.0, 1))
    assert [type(one) for one in again] == [TellNotScaled]
    machine.on_alarm(fired("track", 20.0, at=130.0), seen(130.0, 1, scalable=False))
    told = [one.reason for one in machine.decisions()]
    assert told == ["target-tracking", "capacity-out-of-reach", "update-in-progress"]
    later = machine.on_alarm(fired("track", 20.0, at=130.0), seen(130.0, 1))
    assert asked(later) == [(1, 4, "target-tracking")]


def test_a_count_that_was_set_by_hand_overrides_an_activity() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    accept(machine, machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1)), "mine")
    (settled,) = machine.on_observed(seen(61.0, 7, ready=1))
    assert isinstance(settled, SettleActivity)
    assert (settled.activity_id, settled.status) == ("mine", "Overridden")
    assert settled.message == (
        "The desired instance count of 4 was replaced by 7 before it was reached."
    )


def test_a_second_activity_overrides_the_first() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    accept(machine, machine.on_alarm(fired("track", 10.0, at=60.0), seen(60.0, 1)), "one")
    watch(machine, 61, 70, 2, ready=1)
    more = machine.on_alarm(fired("track", 40.0, at=70.0), seen(70.0, 2, ready=1))
    (settled,) = accept(machine, more, "two")
    assert isinstance(settled, SettleActivity)
    assert (settled.activity_id, settled.status) == ("one", "Overridden")


def test_an_activity_is_taken_up_after_a_restart() -> None:
    """The server was killed between the decision and its end: nothing is decided twice."""
    machine = scaler(tracking())
    machine.restore(Scaled(was=1, to=4, ended=None, cooldown_s=180.0), "before-the-kill")
    assert watch(machine, 0, 5, 4, ready=0) == []
    high = machine.on_alarm(fired("track", 20.0, at=5.0), seen(5.0, 4, ready=1))
    assert asked(high) == []
    (settled,) = reach(machine, 9.0, 4)
    assert isinstance(settled, SettleActivity)
    assert (settled.activity_id, settled.status) == ("before-the-kill", "Successful")


def test_a_refused_write_is_decided_anew() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    assert asked(machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1)))
    assert machine.on_alarm(fired("track", 20.0, at=60.1), seen(60.1, 1)) == []
    assert machine.decisions()[-1].reason == "change-under-way"
    machine.on_refused(SetCapacity(was=1, to=4, reason="target-tracking", cause=""))
    assert asked(machine.on_alarm(fired("track", 20.0, at=70.0), seen(70.0, 2, ready=1))) == [
        (2, 4, "target-tracking")
    ]


def test_the_story_has_the_observation_the_wishes_and_the_reason() -> None:
    machine = scaler(tracking("a"), tracking("b"))
    watch(machine, 0, 60, 2)
    machine.on_alarm(fired("a", 20.0, at=60.0), seen(60.0, 2, in_flight=40))
    (told,) = machine.decisions()
    assert (told.at, told.was, told.to, told.reason) == (60.0, 2, 8, "target-tracking")
    assert told.observed == seen(60.0, 2, in_flight=40)
    assert [(one.policy, one.capacity, one.reason) for one in told.wishes] == [
        ("a", 8, "target-tracking")
    ]


def test_bounds_that_move_during_a_rollout_hold_for_the_count_after_it() -> None:
    machine = scaler(low=1, high=9)
    machine.configure(scaler(low=3, high=9).spec, ())
    assert machine.on_observed(seen(0.0, 1, scalable=False)) == []
    (change,) = machine.on_observed(seen(1.0, 1))
    assert isinstance(change, SetCapacity)
    assert asked([change]) == [(1, 3, "minimum-capacity")]
    machine.on_refused(change)  # somebody was quicker
    again = machine.on_observed(seen(2.0, 2))
    assert asked(again) == [(2, 3, "minimum-capacity")]
    accept(machine, again)
    assert machine.on_observed(seen(3.0, 2, settled=False)) != []
    assert machine.on_observed(seen(4.0, 2)) == []  # set by hand since: it stays
