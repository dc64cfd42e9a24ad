"""Bounds that move by a schedule or by hand, and the count that follows: literal timelines."""

from __future__ import annotations

from tests.kit.core_scaling import accept, asked, fired, low, scaler, seen, steps, tracking, watch

from penstock.core.scaling.actions import RunSchedule, SetCapacity, TellNotScaled, within
from penstock.core.scaling.choose import Scaled
from penstock.core.scaling.spec import ScheduledAction, Suspended
from penstock.core.timetable.timetable import At, Rate, Timetable


def once(name: str, moment: float, **bounds: int) -> tuple[ScheduledAction, float]:
    return ScheduledAction(name=name, timetable=Timetable(At(moment), 0.0), **bounds), moment


def raised(was: int, to: int) -> SetCapacity:
    cause = f"minimum capacity was set to {to}"
    return SetCapacity(was=was, to=to, reason="minimum-capacity", cause=cause, base=to)


def test_a_count_outside_of_new_bounds_is_brought_to_the_nearest() -> None:
    bounds = scaler(low=3, high=5).spec.target
    assert [within(bounds, count) for count in (3, 4, 5)] == [None, None, None]
    assert within(bounds, 1) == raised(1, 3)
    assert raised(1, 3).cooldown_s == 0.0  # what follows bounds keeps nothing waiting
    assert within(bounds, 9) == SetCapacity(
        was=9, to=5, reason="maximum-capacity", cause="maximum capacity was set to 5", base=5
    )


def test_due_schedules_run_in_their_order_and_the_next_sees_the_count_of_the_one_before() -> None:
    machine = scaler(low=1, high=9)
    assert machine.next_deadline() is None
    ten = once("to-ten", 50.0, capacity_max=2)
    machine.configure(machine.spec, [once("later", 90.0), ten, once("three", 40.0, capacity_min=3)])
    assert machine.snapshot()["schedules"] == {"later": 90.0, "to-ten": 50.0, "three": 40.0}
    assert machine.next_deadline() == 40.0
    assert machine.on_timer(seen(39.9, 1), now=39.9) == []
    assert machine.on_timer(seen(40.0, 1), now=40.0) == [
        RunSchedule(
            name="three", reason="schedule-due", next_due=None, capacity_min=3, scale=raised(1, 3)
        )
    ]
    assert machine.next_deadline() == 50.0
    assert (machine.spec.target.capacity_min, machine.spec.target.capacity_max) == (3, 9)
    # the maximum would be below the minimum of before: nothing is changed
    assert machine.on_timer(seen(50.0, 3), now=50.0) == [
        RunSchedule(name="to-ten", reason="bounds-cross", next_due=None, capacity_max=2)
    ]
    assert (machine.spec.target.capacity_min, machine.spec.target.capacity_max) == (3, 9)
    told = [(one.at, one.was, one.to, one.reason, one.trigger) for one in machine.decisions()]
    assert told == [
        (40.0, 1, 3, "schedule-due", "scheduled action name three was triggered"),
        (50.0, 3, 3, "bounds-cross", "scheduled action name to-ten was triggered"),
    ]


def test_schedules_that_are_due_together_follow_one_another() -> None:
    machine = scaler(low=1, high=9)
    rows = [once("b", 20.0, capacity_min=5), once("a", 10.0, capacity_min=3), once("c", 30.0)]
    machine.configure(machine.spec, rows)
    ran = machine.on_timer(seen(60.0, 1), now=60.0)
    assert [(one.name, one.scale) for one in ran if isinstance(one, RunSchedule)] == [
        ("a", raised(1, 3)),
        ("b", raised(3, 5)),
        ("c", None),
    ]
    assert machine.next_deadline() is None


def test_bounds_may_meet_and_a_rate_comes_again_after_now() -> None:
    machine = scaler(low=1, high=3)
    row = ScheduledAction(name="r", timetable=Timetable(Rate(60), 0.0), capacity_min=3)
    machine.configure(machine.spec, [(row, 60.0)])
    (first,) = machine.on_timer(seen(185.0, 3), now=185.0)  # two turns were missed
    assert first == RunSchedule(name="r", reason="schedule-due", next_due=240.0, capacity_min=3)
    assert machine.next_deadline() == 240.0
    machine.configure(machine.spec, [])
    assert machine.next_deadline() is None


def test_suspended_schedules_pass_without_a_change() -> None:
    machine = scaler(low=1, high=9, suspended=Suspended(scheduled=True))
    machine.configure(machine.spec, [once("up", 10.0, capacity_min=3)])
    assert machine.on_timer(seen(10.0, 1), now=10.0) == [
        RunSchedule(name="up", reason="schedule-suspended", next_due=None, capacity_min=3)
    ]
    assert machine.spec.target.capacity_min == 1
    assert machine.on_observed(seen(11.0, 1)) == []


def test_bounds_of_a_schedule_hold_for_the_count_once_it_may_change() -> None:
    """The target was not seen yet, or something was being rolled out."""
    for observed in (None, seen(10.0, 1, scalable=False)):
        machine = scaler(low=1, high=9)
        machine.configure(machine.spec, [once("up", 10.0, capacity_min=3)])
        (ran,) = machine.on_timer(observed, now=10.0)
        assert isinstance(ran, RunSchedule)
        assert (ran.reason, ran.scale) == ("schedule-due", None)
        assert machine.on_observed(seen(11.0, 1, scalable=False)) == []
        assert machine.on_observed(seen(12.0, 1)) == [raised(1, 3)]
    seen_now = scaler(low=1, high=9)
    seen_now.configure(seen_now.spec, [once("up", 10.0, capacity_min=3)])
    seen_now.on_timer(seen(10.0, 1), now=10.0)
    assert seen_now.on_observed(seen(11.0, 1)) == []  # its driver has the change already


def test_moved_bounds_are_looked_at_once() -> None:
    machine = scaler(low=1, high=9)
    machine.configure(scaler(low=3, high=9).spec, ())
    assert machine.on_observed(seen(0.0, 4)) == []
    assert machine.on_observed(seen(1.0, 2)) == []  # set by hand since: it stays


def test_what_policies_said_goes_with_them_and_the_others_stay() -> None:
    machine = scaler(tracking("a"), tracking("b"), high=3)
    watch(machine, 0, 60, 3)
    first = machine.on_alarm(fired("a", 20.0, at=60.0), seen(60.0, 3))
    assert [type(one) for one in first] == [TellNotScaled]
    machine.on_alarm(fired("b", 40.0, at=60.0), seen(60.0, 3))
    assert machine.snapshot()["wishes"] == {"a": 12, "b": 24}
    machine.configure(scaler(tracking("a"), high=3).spec, ())
    assert machine.snapshot()["wishes"] == {"a": 12}
    assert machine.names("arn:a")
    assert not machine.names("arn:b")
    assert machine.on_alarm(fired("a", 20.0, at=61.0), seen(61.0, 3)) == []  # it was told


def test_what_was_asked_before_a_restart_is_not_waited_for() -> None:
    machine = scaler(tracking())
    watch(machine, 0, 60, 1)
    assert asked(machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 1)))
    machine.restore(None)
    assert asked(machine.on_alarm(fired("track", 20.0, at=61.0), seen(61.0, 1))) == [
        (1, 4, "target-tracking")
    ]


def test_after_a_change_a_reason_is_told_again() -> None:
    machine = scaler(tracking(scale_out_cooldown_s=0.0), high=2)
    watch(machine, 0, 60, 2)
    assert len(machine.on_alarm(fired("track", 20.0, at=60.0), seen(60.0, 2))) == 1
    assert machine.on_alarm(fired("track", 20.0, at=61.0), seen(61.0, 2)) == []
    accept(machine, machine.on_alarm(fired("track", 20.0, at=62.0), seen(62.0, 1)))
    machine.on_observed(seen(63.0, 2))
    assert len(machine.on_alarm(fired("track", 20.0, at=64.0), seen(64.0, 2))) == 1


def test_a_step_during_a_cooldown_asks_for_no_more_and_for_no_less() -> None:
    """From 2, +4 went to 6. A step of +2 during the cooldown would be 4, which 6 covers."""
    machine = scaler(steps((0, 10, 2), (10, None, 4)))
    watch(machine, 0, 60, 2)
    accept(machine, machine.on_alarm(fired("step", 20.0, at=60.0), seen(60.0, 2)))
    machine.on_observed(seen(61.0, 6))
    (told,) = machine.on_alarm(fired("step", 9.0, at=62.0), seen(62.0, 6))
    assert isinstance(told, TellNotScaled)
    assert (told.reason, told.not_scaled.code) == ("capacity-is-coming", "AlreadyAtDesiredCapacity")
    assert machine.snapshot()["wishes"] == {"step": 6}


def test_held_requests_get_the_longest_cooldown_of_scaling_out() -> None:
    policies = (
        tracking("a", scale_out_cooldown_s=20.0, scale_in_cooldown_s=500.0),
        tracking("b", scale_out_cooldown_s=70.0, scale_in_cooldown_s=5.0),
    )
    (change,) = scaler(*policies, low=0).capacity_wanted(seen(0.0, 0))
    assert isinstance(change, SetCapacity)
    assert change.cooldown_s == 70.0
    (alone,) = scaler(low=0).capacity_wanted(seen(0.0, 0))
    assert isinstance(alone, SetCapacity)
    assert alone.cooldown_s == 0.0
    seen_by = scaler(low=0, high=0)
    seen_by.capacity_wanted(seen(7.0, 0))
    assert seen_by.latest() == seen(7.0, 0)
    assert [(one.was, one.to) for one in seen_by.decisions()] == [(0, 0)]


def test_what_goes_on_is_one_decision_until_something_of_it_changes() -> None:
    machine = scaler(tracking(), steps((0, 5, 1), name="s"), high=3)
    watch(machine, 0, 60, 3)
    reasons = []
    for at, policy, value in (
        *((60.0, "track", 20.0), (61.0, "track", 20.0)),  # the same: one decision
        (62.0, "track", 30.0),  # asks for more
        (63.0, "s", 99.0),  # no step fits, and the other still asks
        (64.0, "track", 30.0),  # as at 62, but another was last
    ):
        machine.on_alarm(fired(policy, value, at=at), seen(at, 3))
        reasons.append((len(machine.decisions()), machine.decisions()[-1].reason))
    assert reasons == [
        (1, "at-max-capacity"), (1, "at-max-capacity"), (2, "at-max-capacity"),
        (3, "at-max-capacity"), (3, "at-max-capacity"),
    ]  # fmt: skip


def test_the_present_state_is_shown() -> None:
    machine = scaler(tracking())
    assert machine.snapshot() == {
        "open_activity": None, "last": None, "last_ended": None, "wishes": {}, "schedules": {},
        "out_of_reach_until": None,
    }  # fmt: skip
    machine.restore(Scaled(was=1, to=4, ended=None, cooldown_s=180.0), "one")
    shown = machine.snapshot()
    assert (shown["open_activity"], shown["last"], shown["last_ended"]) == ("one", (1, 4), None)
    machine.on_observed(seen(9.0, 4))
    shown = machine.snapshot()
    assert (shown["open_activity"], shown["last"], shown["last_ended"]) == (None, (1, 4), 9.0)
    accept(machine, machine.on_alarm(fired("track", 20.0, at=300.0), seen(300.0, 4)), "two")
    machine.on_observed(seen(301.0, 4, failure="full"))
    assert machine.snapshot()["out_of_reach_until"] == 481.0  # its cooldown of 180 s


def test_a_wish_that_lapsed_is_not_in_the_story() -> None:
    """It lasts for two periods of its alarm, up to their end and not at it."""
    for at, kept in ((79.9, ["a", "b"]), (80.0, ["b"])):
        machine = scaler(tracking("a"), tracking("b"), high=3)
        watch(machine, 0, 60, 3)
        machine.on_alarm(fired("a", 20.0, at=60.0), seen(60.0, 3))
        machine.on_alarm(fired("b", 20.0, at=at), seen(at, 3))
        assert [one.policy for one in machine.decisions()[-1].wishes] == kept


def test_the_narrowest_policy_on_concurrency_scales_fast() -> None:
    wide = tracking("wide", 50.0, of_concurrency=True)
    machine = scaler(wide, tracking("narrow", 2.0, of_concurrency=True), fast=True)
    changes = asked(watch(machine, 0, 10, 1, in_flight=8))
    assert changes == [(1, 4, "load-above-target")]


def test_an_alarm_that_asks_for_nothing_says_its_own_reason() -> None:
    """Another policy's wish for the present count still lives."""
    machine = scaler(tracking("a"), steps((5, None, 1), name="s"))
    watch(machine, 0, 60, 4)
    machine.on_alarm(fired("a", 5.0, at=60.0), seen(60.0, 4))
    machine.on_alarm(fired("s", 6.0, at=61.0), seen(61.0, 4))
    assert machine.decisions()[-1].reason == "no-step"


def test_coming_in_without_any_wish_changes_nothing() -> None:
    machine = scaler(steps((None, -50, -1)))
    watch(machine, 0, 60, 4)
    assert machine.on_alarm(low("step", 4.0, at=60.0), seen(60.0, 4)) == []
    assert machine.decisions()[-1].reason == "no-step"
