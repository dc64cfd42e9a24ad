"""Models that take more than was thought, now or later."""

from __future__ import annotations

from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Load, RefuseParked, Unload


def test_a_model_that_took_more_than_its_estimate_is_made_up_for_by_idle_ones() -> None:
    host = Host()
    host.bring("a", 40, 0.0)
    host.bring("b", 30, 1.0)
    host.request("c", 20.0)
    host.prepared("c", 30, 20.0)
    assert host.loaded("c", 45, 21.0) == [Admit("c", "loaded"), Unload("a", "over-budget")]
    assert host.unloaded("a", 22.0) == []
    assert host.loaded_models == ["b", "c"]


def test_growth_of_a_model_is_charged_to_it_and_idle_ones_go_until_all_fits() -> None:
    host = Host()
    host.bring("a", 40, 0.0)
    host.bring("b", 40, 1.0)
    host.began("b", 2.0)
    assert host.measured(3.0, b=55) == []
    assert host.measured(4.0, b=65) == [Unload("a", "over-budget")]
    assert host.explain("b")["footprint"]["host_bytes"] == 65


def test_growth_that_nobody_is_known_to_have_caused_counts_against_all() -> None:
    host = Host()
    host.bring("a", 40, 0.0)
    host.bring("b", 40, 1.0)
    assert host.measured(3.0, grown=20) == []
    assert host.machine.snapshot()["memory"]["shared"]["host_bytes"] == 20
    assert host.measured(4.0, grown=1) == [Unload("a", "over-budget")]
    assert host.unloaded("a", 5.0) == []


def test_what_runs_take_for_a_while_is_no_reason_to_go_up_to_a_bound() -> None:
    """Loads fill 100; beside them runs may take 10."""
    host = Host(100, running=110)
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    assert host.measured(2.0, grown=10) == []
    assert host.measured(3.0, grown=1) == [Unload("a", "over-budget")]
    assert host.unloaded("a", 4.0) == []
    assert host.ask("c", 45, 20.0) == [Unload("b", "least-recently-used", "c")], "loads: to 100"


def test_no_more_leave_than_are_needed_while_one_is_leaving_already() -> None:
    host = Host()
    host.bring("a", 30, 0.0)
    host.bring("b", 30, 1.0)
    host.bring("c", 30, 2.0)
    assert host.measured(4.0, grown=20) == [Unload("a", "over-budget")]
    assert host.measured(5.0, grown=5) == [], "30 are about to be given back"


def test_memory_that_busy_models_exceed_comes_back_when_one_is_idle() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.began("a", 1.0)
    assert host.measured(2.0, a=90, grown=20) == []
    assert host.idle("a", 3.0) == [Unload("a", "over-budget")]


def test_a_young_model_goes_too_where_memory_is_exceeded() -> None:
    host = Host(residency_s_min=100.0)
    host.bring("a", 50, 0.0)
    assert host.measured(2.0, grown=60) == [Unload("a", "over-budget")]


def test_a_pinned_model_stays_even_then() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.pin("a", 1.0)
    assert host.measured(2.0, grown=60) == []


def test_a_model_that_outgrew_the_budget_alone_goes_into_quarantine() -> None:
    host = Host(used=10, quarantine_s=60.0)
    host.bring("a", 50, 0.0)
    host.bring("b", 20, 1.0)
    host.began("a", 2.0)
    assert host.measured(3.0, a=91) == [Unload("b", "over-budget")]
    assert not host.machine.is_loaded("a")
    message = "model a takes 0 MiB, and the budget is 0 MiB"
    assert host.request("a", 4.0) == [
        RefuseParked("a", "quarantined", message, 59.0, newest_only=True)
    ]
    assert host.explain("a", 4.0)["state"] == "draining"
    assert host.idle("a", 5.0) == [Unload("a", "outgrown")]
    host.unloaded("a", 6.0)
    assert host.explain("a", 6.0)["unloaded_because"] == "outgrown"
    assert host.explain("a", 6.0)["message"] == message


def test_an_idle_model_that_outgrew_the_budget_goes_and_others_need_not() -> None:
    host = Host()
    host.bring("b", 0, 0.0)
    host.bring("a", 50, 1.0)
    assert host.measured(3.0, a=101) == [Unload("a", "outgrown")]


def test_a_model_that_takes_all_there_is_and_more_when_it_is_loaded_answers_once() -> None:
    host = Host()
    host.request("a", 0.0)
    host.prepared("a", 50, 0.0)
    assert host.loaded("a", 101, 1.0) == [Admit("a", "loaded")]
    assert not host.machine.is_loaded("a")
    assert host.idle("a", 2.0) == [Unload("a", "outgrown")]


def test_what_shrank_gives_room() -> None:
    host = Host()
    host.bring("a", 80, 0.0)
    host.began("a", 1.0)
    assert host.ask("b", 30, 2.0) == []
    assert host.measured(3.0, a=70) == [Load("b", "first-call")]


def test_growth_of_models_that_are_not_loaded_here_is_nobody_s() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    known = {"a": bytes_(50), "stranger": bytes_(10)}
    assert host.machine.measured(bytes_(60), now=1.0, by_model=known) == []
    assert host.machine.snapshot()["memory"]["shared"]["host_bytes"] == 10


def test_a_look_while_models_load_does_not_count_their_memory_twice() -> None:
    host = Host(loads_max=1)
    host.bring("a", 40, 0.0)
    host.ask("b", 60, 1.0)
    host.used = bytes_(95)
    assert host.machine.measured(host.used, now=2.0) == [], "55 of the 60 that were expected"
    host.used = bytes_(101)
    assert host.machine.measured(host.used, now=3.0) == [Unload("a", "over-budget")]


def test_host_and_accelerator_memory_are_exceeded_each_for_itself() -> None:
    host = Host(100, 50)
    host.bring("host-only", bytes_(50, 0), 0.0)
    host.bring("both", bytes_(10, 30), 1.0)
    host.used += bytes_(0, 30)
    assert host.machine.measured(host.used, now=2.0) == [Unload("both", "over-budget")]


def test_a_model_that_is_in_quarantine_already_is_not_put_there_again() -> None:
    host = Host(quarantine_s=60.0)
    host.bring("a", 50, 0.0)
    host.began("a", 1.0)
    host.measured(3.0, a=110)
    host.measured(10.0, a=120)
    assert host.explain("a", 10.0)["refused_for_s"] == 53.0
    assert [event["what"] for event in host.explain("a")["story"]].count("quarantined") == 1


def test_all_that_may_go_do_where_even_they_are_not_enough() -> None:
    host = Host(residency_s_min=100.0)
    host.bring("a", 20, 0.0)
    host.bring("b", 20, 1.0)
    host.bring("busy", 60, 2.0)
    host.began("busy", 3.0)
    assert host.measured(4.0, grown=70) == [Unload("a", "over-budget"), Unload("b", "over-budget")]


def test_of_the_young_no_more_go_than_memory_is_exceeded_by() -> None:
    host = Host(residency_s_min=100.0)
    host.bring("a", 40, 0.0)
    host.bring("b", 40, 1.0)
    assert host.measured(4.0, grown=30) == [Unload("a", "over-budget")]
