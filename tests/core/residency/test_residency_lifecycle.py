"""Explicit loads and unloads, artifacts that change, caches that are disabled."""

from __future__ import annotations

import pytest
from tests.kit.core_residency import Host

from penstock.core.residency import Admit, Load, Prepare, RefuseParked, Unload

# wishes


def test_a_wish_loads_without_a_caller() -> None:
    host = Host()
    assert host.wish("a", 0.0) == [Prepare("a", "wished")]
    assert host.prepared("a", 10, 1.0) == [Load("a", "wished")]
    assert host.loaded("a", 10, 2.0) == []
    assert host.machine.is_loaded("a")
    assert host.explain("a")["loaded_because"] == "wished"


def test_a_wish_for_what_is_loaded_or_on_its_way_asks_for_nothing() -> None:
    host = Host()
    host.request("a", 0.0)
    assert host.wish("a", 0.5) == []
    host.prepared("a", 10, 1.0)
    assert host.loaded("a", 10, 2.0) == [Admit("a", "loaded")]
    assert host.wish("a", 3.0) == []
    assert host.idle("a", 4.0) == []


def test_a_wish_that_can_not_be_is_refused_though_nobody_is_parked() -> None:
    host = Host()
    host.wish("a", 0.0)
    (refused,) = host.prepared("a", 101, 1.0)
    assert isinstance(refused, RefuseParked)
    assert refused.reason == "larger-than-budget"


def test_a_wish_outlives_the_callers_that_came_for_it_too() -> None:
    host = Host(loads_max=1)
    host.request("running", 0.0)
    host.wish("a", 1.0)
    host.request("a", 2.0, 5.0)
    (refused,) = host.timer(5.0)
    assert isinstance(refused, RefuseParked)
    assert host.machine.snapshot()["queue"] == ["running", "a"]
    host.failed("running", 6.0)
    assert host.explain("a")["state"] == "preparing"
    assert host.prepared("a", 10, 7.0) == [Load("a", "wished")]


# dismissals


def test_a_dismissed_model_that_is_idle_goes_at_once_and_comes_back_when_called() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    assert host.dismiss("a", 1.0) == [Unload("a", "dismissed")]
    assert not host.machine.is_loaded("a")
    assert host.unloaded("a", 2.0) == []
    assert host.request("a", 3.0) == [Prepare("a", "called-again")]


def test_a_pin_does_not_stand_against_an_explicit_unload() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.pin("a", 0.5)
    assert host.dismiss("a", 1.0) == [Unload("a", "dismissed")]


def test_a_dismissed_model_answers_what_is_in_flight_first() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    assert host.dismiss("a", 2.0) == []
    assert not host.machine.is_loaded("a")
    assert host.explain("a")["state"] == "draining"
    assert host.explain("a")["drains_because"] == "dismissed"
    assert host.idle("a", 3.0) == [Unload("a", "dismissed")]


def test_a_model_called_while_it_drains_answers_and_stays() -> None:
    """During a drain a model must not answer nowhere although it is still loaded."""
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.dismiss("a", 2.0)
    assert host.request("a", 2.5) == [Admit("a", "still-loaded")]
    assert host.machine.is_loaded("a")
    host.began("a", 2.5)
    assert host.idle("a", 3.0) == []
    assert host.explain("a")["hits"] == 2


def test_a_wish_takes_a_dismissal_back() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.dismiss("a", 2.0)
    assert host.wish("a", 2.5) == []
    assert host.machine.is_loaded("a")
    assert host.idle("a", 3.0) == []


def test_a_dismissal_ends_a_wish_that_waits() -> None:
    host = Host(loads_max=1)
    host.request("running", 0.0)
    host.wish("a", 1.0)
    assert host.dismiss("a", 2.0) == []
    assert host.machine.snapshot()["queue"] == ["running"]


def test_who_waits_for_a_dismissed_model_is_answered_first() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 1.0)
    assert host.dismiss("a", 1.5) == []
    assert host.loaded("a", 10, 2.0) == [Admit("a", "loaded")]
    assert not host.machine.is_loaded("a")
    assert host.idle("a", 3.0) == [Unload("a", "dismissed")]


def test_a_load_that_is_dismissed_while_it_runs_is_undone() -> None:
    host = Host()
    host.wish("a", 0.0)
    host.prepared("a", 10, 1.0)
    assert host.dismiss("a", 1.5) == []
    assert host.loaded("a", 10, 2.0) == [Unload("a", "dismissed")]


def test_a_dismissed_model_does_not_load_on_for_those_it_was_too_late_for() -> None:
    host = Host(loads_max=1)
    host.request("running", 0.0)
    host.request("a", 1.0, 5.0)
    host.dismiss("a", 2.0)
    assert [action.reason for action in host.timer(5.0)] == ["not-in-time"]
    assert host.machine.snapshot()["queue"] == ["running"]


@pytest.mark.parametrize("again", ["request", "wish"])
def test_who_asks_for_a_model_that_was_dismissed_on_its_way_keeps_it(again: str) -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 1.0)
    host.dismiss("a", 1.5)
    assert getattr(host, again)("a", 1.6) == []
    assert host.loaded("a", 10, 2.0) == [Admit("a", "loaded")]
    assert host.machine.is_loaded("a")
    assert [event["what"] for event in host.explain("a")["story"]].count("dismissed") == 1


def test_a_model_that_was_taken_back_is_the_one_that_was_used_last() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    host.began("a", 2.0)
    host.called("b", 2.5)
    host.dismiss("a", 3.0)
    assert host.request("a", 4.0) == [Admit("a", "still-loaded")]
    host.began("a", 4.0)
    host.began("a", 4.1)
    assert host.explain("a")["hits"] == 3, "two, and the one that was not parked"
    host.idle("a", 5.0)
    assert host.ask("c", 50, 20.0) == [Unload("b", "least-recently-used", "c")]


def test_dismissing_what_is_not_loaded_is_nothing() -> None:
    host = Host()
    assert host.dismiss("a", 0.0) == []
    assert host.request("a", 1.0) == [Prepare("a", "first-call")]


# artifacts that change


def test_a_replaced_model_that_is_idle_goes_and_its_next_load_is_the_new_one() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    assert host.replaced("a", 1.0) == [Unload("a", "replaced")]
    assert [event["what"] for event in host.explain("a")["story"]][-2:] == ["replaced", "unload"]
    assert host.unloaded("a", 2.0) == [Prepare("a", "replaced")]
    assert host.request("a", 3.0) == []
    assert host.prepared("a", 20, 4.0) == [Load("a", "called-again")]
    assert host.machine.snapshot()["memory"]["loading"]["host_bytes"] == 20


def test_a_replaced_model_is_fetched_again_into_the_room_it_left() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.replaced("a", 1.0)
    assert host.unloaded("a", 2.0) == [Prepare("a", "replaced")]
    assert host.prepared("a", 20, 3.0) == [Load("a", "replaced")]
    assert host.loaded("a", 20, 4.0) == []
    assert host.machine.is_loaded("a")


def test_nobody_is_evicted_for_a_replaced_model_that_nobody_waits_for() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.bring("b", 80, 0.0)
    host.replaced("a", 1.0)
    assert host.unloaded("a", 2.0) == [Prepare("a", "replaced")]
    assert host.prepared("a", 21, 3.0) == []
    assert host.explain("a")["state"] == "unloaded"
    assert host.ask("a", 21, 20.0) == [Unload("b", "least-recently-used", "a")]


def test_a_replaced_model_answers_what_is_in_flight_and_new_calls_wait_for_the_new() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    assert host.replaced("a", 2.0) == []
    assert not host.machine.is_loaded("a")
    assert host.request("a", 2.5) == []
    assert host.idle("a", 3.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 3.5) == [Prepare("a", "called-again")]
    host.prepared("a", 12, 4.0)
    assert host.loaded("a", 12, 5.0) == [Admit("a", "loaded")]


@pytest.mark.parametrize("deadline", [3.0, None])
def test_waiting_for_the_new_artifact_has_an_end_like_any_wait(deadline: float | None) -> None:
    host = Host()
    host.bring("a", 10, 0.0, load_s=0.0)
    host.began("a", 1.0)
    host.replaced("a", 2.0)
    assert host.request("a", 2.5, deadline) == []
    assert host.deadline == deadline
    if deadline is not None:
        assert [action.reason for action in host.timer(3.0)] == ["not-in-time"]


def test_an_artifact_replaced_while_it_is_prepared_is_prepared_again() -> None:
    host = Host()
    host.request("a", 0.0)
    assert host.replaced("a", 0.5) == []
    assert host.prepared("a", 10, 1.0) == [Prepare("a", "replaced")]
    assert host.prepared("a", 20, 2.0) == [Load("a", "first-call")]


def test_an_artifact_replaced_while_it_waits_for_room_is_prepared_again() -> None:
    host = Host()
    host.bring("b", 95, 0.0)
    host.began("b", 1.0)
    host.ask("a", 10, 2.0)
    assert host.replaced("a", 3.0) == [Prepare("a", "replaced")]


def test_an_artifact_replaced_while_it_loads_is_not_answered_from() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 1.0)
    assert host.replaced("a", 1.5) == []
    assert host.loaded("a", 10, 2.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 2.5) == [Prepare("a", "called-again")]
    host.prepared("a", 10, 3.0)
    assert host.loaded("a", 10, 4.0) == [Admit("a", "loaded")]


def test_the_failure_of_an_artifact_that_was_replaced_meanwhile_is_nobody_s() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 10, 1.0)
    host.replaced("a", 1.5)
    assert host.failed("a", 2.0) == [Prepare("a", "replaced")]
    host.abandoned("a", 2.5)
    host.replaced("a", 3.0)
    assert host.failed("a", 4.0) == []
    assert host.request("a", 5.0) == [Prepare("a", "first-call")]


def test_a_crash_of_what_was_replaced_counts_against_nobody() -> None:
    host = Host(crashes_max=1)
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.replaced("a", 2.0)
    host.crashed("a", 3.0)
    assert host.request("a", 4.0) == [Prepare("a", "called-again")]
    host.prepared("a", 10, 5.0)
    host.replaced("a", 6.0)
    assert host.crashed("a", 7.0) == [Prepare("a", "replaced")]


def test_an_artifact_that_is_gone_is_what_callers_are_told() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.replaced("a", 1.0)
    assert host.unloaded("a", 2.0) == [Prepare("a", "replaced")]
    assert host.request("a", 2.5) == []
    assert host.failed("a", 3.0, "no such artifact", permanent=True) == [
        RefuseParked("a", "load-failed", "no such artifact", None)
    ]


def test_a_dismissed_model_that_is_replaced_is_not_fetched_again() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.dismiss("a", 2.0)
    host.replaced("a", 3.0)
    assert host.idle("a", 4.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 5.0) == []


def test_a_replaced_model_that_is_dismissed_too_stays_replaced() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.replaced("a", 2.0)
    assert host.dismiss("a", 3.0) == []
    assert host.request("a", 4.0) == [], "the old artifact answers nobody new"
    assert host.idle("a", 5.0) == [Unload("a", "replaced")]


def test_a_wish_while_the_old_one_drains_brings_the_new_one() -> None:
    host = Host()
    host.bring("a", 10, 0.0)
    host.began("a", 1.0)
    host.replaced("a", 2.0)
    assert host.wish("a", 3.0) == []
    assert host.idle("a", 4.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 5.0) == [Prepare("a", "wished")]


def test_a_wish_of_what_was_replaced_while_it_loaded_is_kept() -> None:
    host = Host()
    host.wish("a", 0.0)
    host.prepared("a", 10, 1.0)
    host.replaced("a", 1.5)
    assert host.loaded("a", 10, 2.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 3.0) == [Prepare("a", "wished")]


# ModelCacheSetting Disabled


def test_without_a_cache_a_model_goes_as_soon_as_it_is_idle() -> None:
    host = Host(keep=False)
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0)
    assert host.loaded("a", 10, 1.0) == [Admit("a", "loaded")]
    host.began("a", 1.0)
    host.began("a", 1.5)
    assert host.idle("a", 2.0) == [Unload("a", "cache-disabled")]
    assert host.unloaded("a", 3.0) == []
    assert host.deadline is None


def test_without_a_cache_what_was_wished_for_waits_for_its_first_call() -> None:
    host = Host(keep=False)
    host.wish("a", 0.0)
    host.prepared("a", 10, 0.0)
    assert host.loaded("a", 10, 1.0) == []
    assert host.called("a", 2.0) == [Unload("a", "cache-disabled")]


def test_without_a_cache_a_pinned_model_stays() -> None:
    host = Host(keep=False)
    host.pin("a", 0.0)
    host.bring("a", 10, 0.0)
    assert host.called("a", 2.0) == []
    host.request("b", 3.0)
    host.pin("b", 3.0)
    host.abandoned("b", 3.5)
    host.wish("b", 4.0)
    host.prepared("b", 10, 4.0)
    assert host.loaded("b", 10, 5.0) == []


def test_without_a_cache_a_model_that_nobody_waits_for_any_more_goes_at_once() -> None:
    host = Host(keep=False)
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0)
    host.abandoned("a", 0.5)
    assert host.loaded("a", 10, 1.0) == [Unload("a", "cache-disabled")]
