"""Room is made before a load begins, by the models that were unused for longest."""

from __future__ import annotations

import pytest
from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Load, Prepare, RefuseParked, Unload


def test_a_load_begins_only_when_those_who_make_room_have_left() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    assert host.ask("c", 100, 20.0) == [
        Unload("a", "least-recently-used", "c"),
        Unload("b", "least-recently-used", "c"),
    ]
    assert not host.machine.is_loaded("a")
    assert host.unloaded("a", 20.1) == []
    assert host.unloaded("b", 20.2) == [Load("c", "room-made")]
    assert host.loaded("c", 100, 21.0) == [Admit("c", "loaded")]


def test_room_that_is_promised_is_not_taken_by_those_behind() -> None:
    """What a victim leaves is for whom it left, though another would fit there at once."""
    host = Host(loads_max=3)
    host.bring("a", 60, 0.0)
    host.bring("b", 40, 1.0)
    host.began("b", 2.0)
    assert host.ask("big", 60, 20.0) == [Unload("a", "least-recently-used", "big")]
    assert host.ask("small", 10, 20.1) == []
    assert host.unloaded("a", 21.0) == [Load("big", "room-made")]
    assert host.loaded("big", 60, 22.0) == [Admit("big", "loaded")]
    assert host.idle("b", 30.0) == [Unload("b", "least-recently-used", "small")]
    assert host.unloaded("b", 30.0) == [Load("small", "room-made")]


def test_a_second_load_waits_for_room_that_another_makes_in_excess() -> None:
    host = Host(loads_max=2)
    host.bring("a", 100, 0.0)
    assert host.ask("b", 30, 20.0) == [Unload("a", "least-recently-used", "b")]
    assert host.ask("c", 40, 20.1) == [], "what leaves is enough for both"
    assert host.unloaded("a", 21.0) == [Load("b", "room-made"), Load("c", "room-made")]


def test_what_was_freed_less_than_expected_is_made_up_for_by_more() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    assert host.ask("c", 50, 20.0) == [Unload("a", "least-recently-used", "c")]
    host.used += bytes_(10)  # kept by the process
    assert host.unloaded("a", 21.0) == [Unload("b", "least-recently-used", "c")]
    assert host.unloaded("b", 22.0) == [Load("c", "room-made")]


def test_a_model_that_answers_is_not_unloaded_and_goes_once_it_is_idle() -> None:
    host = Host()
    host.bring("a", 60, 0.0)
    host.began("a", 1.0)
    assert host.ask("b", 60, 20.0) == []
    assert host.deadline is None
    host.began("a", 21.0)
    assert host.idle("a", 22.0) == [Unload("a", "least-recently-used", "b")]
    assert host.unloaded("a", 22.1) == [Load("b", "room-made")]


def test_a_model_that_is_about_to_be_called_by_those_admitted_is_busy() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 60, 0.0)
    host.loaded("a", 60, 1.0)
    assert host.ask("b", 60, 1.5) == []
    assert host.idle("a", 2.0) == [Unload("a", "least-recently-used", "b")]


def test_nobody_is_evicted_for_a_model_larger_than_the_budget() -> None:
    host = Host(used=10)
    host.bring("a", 80, 0.0)
    (refused,) = host.ask("b", 91, 20.0)
    assert isinstance(refused, RefuseParked)
    assert (refused.reason, refused.retry_after_s) == ("larger-than-budget", None)
    assert host.loaded_models == ["a"]
    again = host.request("b", 1e6)
    assert [action.reason for action in again] == ["larger-than-budget"]
    assert again[0].newest_only  # type: ignore[union-attr]
    host.replaced("b", 1e6)
    assert host.ask("b", 90, 1e6) == [Unload("a", "least-recently-used", "b")]


def test_nobody_is_evicted_while_those_who_may_go_are_not_enough() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    host.began("b", 2.0)
    assert host.ask("c", 60, 20.0) == []
    assert host.loaded_models == ["a", "b"]
    assert host.idle("b", 30.0) == [
        Unload("a", "least-recently-used", "c"),
        Unload("b", "least-recently-used", "c"),
    ]


def test_no_room_until_the_deadline_is_said_when_it_can_not_be_met_any_more() -> None:
    host = Host()
    host.bring("c", 60, 0.0, load_s=2.0)
    host.crashed("c", 1.0)
    host.bring("a", 60, 2.0)
    host.began("a", 3.0)
    assert host.request("c", 20.0, 30.0) == [Prepare("c", "called-again")]
    assert host.prepared("c", 60, 20.0) == []
    assert host.deadline == 28.0
    assert host.timer(28.0) == [
        RefuseParked(
            "c", "no-room", "all models that could make room for c answer or are pinned", 2.0
        )
    ]  # fmt: skip
    assert host.machine.snapshot()["queue"] == []
    assert host.idle("a", 29.0) == [], "nobody waits any more, so nobody is evicted"


def test_a_pinned_model_is_not_evicted_and_who_needs_its_room_is_told_at_once() -> None:
    host = Host()
    host.bring("a", 60, 0.0)
    host.bring("b", 30, 1.0)
    host.pin("a", 2.0)
    assert host.ask("c", 40, 20.0) == [Unload("b", "least-recently-used", "c")]
    host.unloaded("b", 20.0)
    host.loaded("c", 40, 21.0)
    host.idle("c", 21.0)
    (refused,) = host.ask("d", 50, 40.0)
    assert refused == RefuseParked(
        "d",
        "no-room",
        "model d needs 0 MiB; of the budget of 0 MiB, 0 MiB are taken, and no model may go: "
        "1 are pinned",
    )
    assert host.loaded_models == ["a", "c"]
    host.pin("a", 41.0, pinned=False)
    assert host.ask("d", 50, 42.0) == [Unload("a", "least-recently-used", "d")]


def test_unpinning_lets_a_load_begin_that_waited_for_it() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    host.pin("a", 2.0)
    host.began("b", 3.0)
    assert host.ask("c", 50, 20.0) == []
    assert host.pin("a", 21.0, pinned=False) == [Unload("a", "least-recently-used", "c")]


def test_memory_that_no_model_holds_refuses_when_nobody_is_left_to_go() -> None:
    host = Host()
    assert host.measured(0.0, grown=50) == []
    (refused,) = host.ask("a", 60, 1.0)
    assert isinstance(refused, RefuseParked)
    assert (refused.reason, refused.retry_after_s) == ("no-room", 5.0)
    assert host.request("a", 2.0) == [Prepare("a", "first-call")], "it may be free by now"


def test_what_no_model_is_charged_with_is_looked_for_in_one_model_after_the_other() -> None:
    """`a` and `b` have left more behind than they are known to take: waiting would be for ever."""
    host = Host()
    host.bring("a", 20, 0.0)
    host.bring("b", 20, 1.0)
    host.began("b", 2.0)
    assert host.measured(10.0, grown=50) == []
    assert host.ask("c", 60, 20.0) == [Unload("a", "least-recently-used", "c")]
    host.used -= bytes_(20)  # more than it was charged with
    assert host.unloaded("a", 20.5) == []
    assert host.loaded_models == ["b"], "once it is idle it would be enough, so it is waited for"
    assert host.idle("b", 21.0) == [Unload("b", "least-recently-used", "c")]
    assert host.unloaded("b", 21.5) == [Load("c", "room-made")]


def test_what_stays_when_every_model_is_gone_refuses_those_who_wait() -> None:
    host = Host()
    host.bring("a", 20, 0.0)
    host.bring("b", 20, 1.0)
    assert host.measured(10.0, grown=50) == []
    assert host.ask("c", 60, 20.0) == [Unload("a", "least-recently-used", "c")]
    assert host.unloaded("a", 20.5) == [Unload("b", "least-recently-used", "c")]
    (refused,) = host.unloaded("b", 21.0)
    assert isinstance(refused, RefuseParked)
    assert (refused.reason, refused.retry_after_s) == ("no-room", 5.0)


def test_only_so_many_models_are_loaded_where_that_is_limited() -> None:
    host = Host(models_max=2, loads_max=2)
    host.bring("a", 1, 0.0)
    host.bring("b", 1, 1.0)
    assert host.ask("c", 1, 20.0) == [Unload("a", "least-recently-used", "c")]
    assert host.unloaded("a", 20.5) == [Load("c", "room-made")]
    assert host.ask("d", 1, 21.0) == [Unload("b", "least-recently-used", "d")]
    assert host.loaded("c", 1, 22.0) == [Admit("c", "loaded")]
    assert host.unloaded("b", 23.0) == [Load("d", "room-made")]


def test_pinned_models_can_take_every_place() -> None:
    host = Host(models_max=1)
    host.bring("a", 1, 0.0)
    host.pin("a", 1.0)
    assert [action.reason for action in host.ask("b", 1, 20.0)] == ["no-room"]


# what loads at the same time


def test_what_running_loads_will_take_is_not_given_to_others() -> None:
    host = Host(loads_max=3)
    assert host.ask("a", 60, 0.0) == [Load("a", "first-call")]
    assert host.ask("b", 60, 0.1) == []
    assert host.ask("c", 40, 0.2) == [Load("c", "first-call")]
    host.used = bytes_(25)  # a part of what both will take shows already
    assert host.machine.measured(host.used, now=0.5) == []
    assert host.machine.snapshot()["memory"]["committed"]["host_bytes"] == 100


def test_an_estimate_gives_way_to_what_was_measured() -> None:
    """Sizes guessed from a multiplier over-allocate memory for as long as the guess is believed."""
    host = Host(loads_max=1)
    host.request("a", 0.0)
    host.prepared("a", 80, 0.0, sized=False)
    assert host.ask("b", 50, 0.0) == []
    assert host.loaded("a", 40, 1.0) == [Admit("a", "loaded"), Load("b", "first-call")]
    host.loaded("b", 50, 2.0)
    host.idle("a", 2.0)
    host.idle("b", 2.0)
    host.crashed("a", 3.0)
    again = host.ask("a", 80, 4.0, sized=False)
    assert again == [Load("a", "called-again")], "40 are known to be enough"


def test_what_is_measured_elsewhere_is_believed_over_what_was_taken_here() -> None:
    host = Host()
    host.bring("a", 40, 0.0)
    host.crashed("a", 1.0)
    host.request("a", 2.0)
    assert host.prepared("a", bytes_(55), 2.0, measured=True) == [Load("a", "called-again")]
    assert host.explain("a")["footprint"] == {
        "host_bytes": 40, "accelerator_bytes": 0, "basis": "measured",
    }  # fmt: skip
    assert host.machine.snapshot()["memory"]["loading"]["host_bytes"] == 55


def test_another_artifact_has_another_size() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0, artifact="one")
    host.loaded("a", 10, 0.0)
    host.idle("a", 0.0)
    host.crashed("a", 1.0)
    host.request("a", 2.0)
    host.prepared("a", 70, 2.0, artifact="two")
    assert host.machine.snapshot()["memory"]["loading"]["host_bytes"] == 70


# nobody starves


def test_smaller_loads_go_ahead_of_one_whose_room_can_not_be_had_yet_but_not_for_ever() -> None:
    host = Host(loads_max=1, residency_s_min=0.0)
    host.bring("busy", 50, 0.0)
    host.began("busy", 1.0)
    assert host.ask("big", 60, 2.0) == []
    for at in range(8):
        assert host.ask(f"small-{at}", 1, 3.0 + at) == [Load(f"small-{at}", "first-call")]
        host.loaded(f"small-{at}", 1, 3.5 + at)
        host.idle(f"small-{at}", 3.5 + at)
    assert host.ask("small-8", 1, 20.0) == []
    assert host.deadline == 30.0
    assert host.timer(29.9) == []
    assert host.timer(30.0) == [Load("small-8", "first-call")], "they take turns"
    host.loaded("small-8", 1, 31.0)
    host.idle("small-8", 31.0)
    gone = host.idle("busy", 32.0)
    assert [type(action) for action in gone] == [Unload]


# too young to go


def test_a_model_that_was_just_loaded_stays_its_minimum() -> None:
    host = Host(residency_s_min=10.0)
    host.bring("a", 60, 0.0)
    assert host.ask("b", 60, 5.0) == []
    assert host.deadline == 10.0
    assert host.timer(9.9) == []
    assert host.timer(10.0) == [Unload("a", "least-recently-used", "b")]


def test_it_goes_before_if_a_request_would_miss_its_deadline_otherwise() -> None:
    host = Host(residency_s_min=10.0)
    host.bring("a", 60, 0.0)
    assert host.ask("b", 60, 5.0) == []
    # b takes 60 s/60 bytes * 60 bytes = 1 s to load: it must begin at 8.0.
    assert host.request("b", 6.0, 9.0) == [Unload("a", "least-recently-used", "b")]


@pytest.mark.parametrize(("deadline", "at_once"), [(11.0, False), (10.9, True)])
def test_waiting_is_tried_where_it_is_in_time(deadline: float, at_once: bool) -> None:
    host = Host(residency_s_min=10.0)
    host.bring("a", 60, 0.0)
    host.request("b", 5.0, deadline)
    actions = host.prepared("b", 60, 5.0)
    assert bool(actions) is at_once


def test_of_those_too_young_only_as_many_go_as_must() -> None:
    host = Host(residency_s_min=10.0)
    host.bring("old", 30, 0.0)
    host.bring("young", 30, 15.0)
    host.bring("youngest", 40, 16.0)
    host.request("b", 20.0, 21.5)
    assert host.prepared("b", 50, 20.0) == [
        Unload("old", "least-recently-used", "b"),
        Unload("young", "least-recently-used", "b"),
    ]


def test_a_wait_for_age_counts_only_models_that_will_be_enough() -> None:
    host = Host(residency_s_min=10.0)
    host.bring("a", 40, 0.0)
    host.bring("b", 40, 4.0)
    assert host.ask("c", 90, 5.0) == []
    assert host.deadline == 14.0
    assert host.timer(14.0) == [
        Unload("a", "least-recently-used", "c"),
        Unload("b", "least-recently-used", "c"),
    ]


def test_those_who_may_come_again_evict_models_and_are_forgotten_where_nobody_may_go() -> None:
    host = Host()
    host.bring("a", 60, 0.0, load_s=4.0)
    (refused, prepare) = host.request("b", 20.0, 20.5)
    assert isinstance(refused, RefuseParked)
    assert (refused.reason, prepare) == ("not-in-time", Prepare("b", "retry-expected"))
    assert host.prepared("b", 60, 20.5) == [Unload("a", "least-recently-used", "b")]
    assert host.explain("a")["evictions"] == 1
    assert host.unloaded("a", 21.0) == [Load("b", "room-made")]
    host.loaded("b", 60, 24.0, load_s=4.0)
    host.began("b", 25.0)
    assert [type(action) for action in host.request("c", 26.0, 26.2)] == [RefuseParked, Prepare]
    assert host.prepared("c", 60, 26.5) == []
    assert host.machine.snapshot()["queue"] == []


# the driver's words and the machine's may cross


def test_the_place_of_a_model_whose_caller_left_in_the_meantime_is_free() -> None:
    host = Host()
    host.bring("a", 100, 0.0)
    assert host.ask("b", 100, 20.0) == [Unload("a", "least-recently-used", "b")]
    assert host.abandoned("b", 20.5) == []
    assert host.unloaded("a", 21.0) == []
    assert host.request("a", 22.0) == [Prepare("a", "called-again")]


def test_a_model_called_while_it_is_unloaded_comes_back() -> None:
    host = Host()
    host.bring("a", 60, 0.0)
    assert host.ask("b", 60, 20.0) == [Unload("a", "least-recently-used", "b")]
    assert host.request("a", 20.5) == []
    assert host.unloaded("a", 21.0) == [Prepare("a", "called-again"), Load("b", "room-made")]


def test_a_load_that_runs_keeps_its_room_while_others_leave() -> None:
    """Measured memory alone would let `c` begin: `b` has taken nothing yet, `a` is still there."""
    host = Host(loads_max=2)
    host.bring("a", 50, 0.0)
    assert host.ask("b", 50, 20.0) == [Load("b", "first-call")]
    assert host.ask("c", 50, 21.0) == [Unload("a", "least-recently-used", "c")]
    assert host.request("d", 22.0) == [Prepare("d", "first-call")]
    assert host.unloaded("a", 23.0) == [Load("c", "room-made")]


def test_who_waits_for_age_is_forgotten_with_its_callers() -> None:
    host = Host(residency_s_min=10.0)
    host.bring("a", 60, 0.0)
    host.ask("b", 60, 5.0)
    assert host.deadline == 10.0
    host.abandoned("b", 6.0)
    assert host.deadline is None


def test_eight_more_go_ahead_after_each_wait() -> None:
    host = Host(loads_max=1)
    host.bring("busy", 50, 0.0)
    host.began("busy", 1.0)
    host.ask("big", 60, 2.0)

    def small(number: int, now: float) -> bool:
        if not host.ask(f"small-{number:02}", 1, now):
            return False
        host.loaded(f"small-{number:02}", 1, now)
        host.idle(f"small-{number:02}", now)
        return True

    assert [small(at, 3.0) for at in range(9)] == [True] * 8 + [False]
    assert host.timer(13.0) == [Load("small-08", "first-call")]
    host.loaded("small-08", 1, 13.0)
    host.idle("small-08", 13.0)
    assert [small(at, 14.0) for at in range(9, 17)] == [True] * 7 + [False]


def test_hundreds_of_models_are_evicted_in_the_order_of_their_last_use() -> None:
    host = Host(300)
    for at in range(300):
        host.bring(f"m-{at:03}", 1, float(at))
    host.called("m-000", 400.0)
    host.pin("m-001", 400.0)
    for at in range(2, 12):
        host.began(f"m-{at:03}", 400.0)
    assert host.ask("new", 2, 500.0) == [
        Unload("m-012", "least-recently-used", "new"),
        Unload("m-013", "least-recently-used", "new"),
    ]


def test_however_many_answer_the_one_that_is_idle_goes() -> None:
    host = Host(300)
    for at in range(300):
        host.bring(f"m-{at:03}", 1, float(at))
    for at in range(299):
        host.began(f"m-{at:03}", 400.0)
    assert host.ask("new", 1, 500.0) == [Unload("m-299", "least-recently-used", "new")]
    host.unloaded("m-299", 500.0)
    host.loaded("new", 1, 500.0)
    for at in range(299):
        host.idle(f"m-{at:03}", 501.0)
    gone = host.ask("large", 250, 600.0)
    assert len(gone) == 250


def test_accelerator_memory_that_may_be_had_in_time_is_waited_for() -> None:
    host = Host(1000, 100, residency_s_min=10.0)
    host.bring("a", bytes_(1, 50), 0.0)
    host.bring("b", bytes_(1, 50), 4.0)
    assert host.ask("c", bytes_(1, 60), 11.0) == []
    assert host.deadline == 14.0
    assert host.timer(14.0) == [
        Unload("a", "least-recently-used", "c"),
        Unload("b", "least-recently-used", "c"),
    ]


def test_places_that_may_be_had_in_time_are_waited_for() -> None:
    host = Host(models_max=2, residency_s_min=10.0, loads_max=1)
    host.bring("a", 1, 0.0)
    host.bring("b", 1, 4.0)
    assert host.ask("c", 1, 5.0) == []
    assert host.deadline == 10.0
    assert host.timer(10.0) == [Unload("a", "least-recently-used", "c")]


def test_free_room_that_is_part_of_a_promise_is_not_given_away() -> None:
    """`small` would fit now, and then `big` would not once `a` has left."""
    host = Host(loads_max=3)
    host.bring("a", 50, 0.0)
    assert host.ask("big", 80, 20.0) == [Unload("a", "least-recently-used", "big")]
    assert host.ask("small", 40, 20.5) == []
    assert host.unloaded("a", 21.0) == [Load("big", "room-made")]
    assert host.explain("small")["state"] == "prepared"
