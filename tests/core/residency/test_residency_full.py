"""A server that hosts models itself says that it is full (507): another one goes, then again."""

from __future__ import annotations

from tests.kit.core_residency import Host

from penstock.core.residency import Action, Load, Prepare, RefuseParked, Unload


def full(host: Host, model: str, now: float) -> list[Action]:
    actions = host.machine.full(model, now=now, used=host.used)
    host.machine.check_invariants()
    return actions


def test_a_load_that_finds_the_server_full_is_tried_again_when_another_model_has_left() -> None:
    host = Host()
    host.bring("a", 1, 0.0)
    host.bring("b", 1, 1.0)
    assert host.ask("c", 1, 20.0) == [Load("c", "first-call")]
    assert full(host, "c", 20.1) == [Prepare("c", "first-call")]
    assert host.prepared("c", 1, 20.2) == [Unload("a", "least-recently-used", "c")]
    assert host.unloaded("a", 20.3) == [Load("c", "room-made")]


def test_what_a_server_holds_is_known_from_then_on() -> None:
    host = Host()
    for at, name in enumerate("abc"):
        host.bring(name, 1, float(at))
    host.ask("d", 1, 20.0)
    full(host, "d", 20.1)
    host.prepared("d", 1, 20.2)
    host.unloaded("a", 20.3)
    host.loaded("d", 1, 21.0)
    host.began("d", 21.0)
    host.idle("d", 21.0)
    assert host.ask("a", 1, 40.0) == [Unload("b", "least-recently-used", "a")]


def test_after_five_minutes_it_is_asked_again_what_fits() -> None:
    host = Host()
    host.bring("a", 1, 0.0)
    host.bring("b", 1, 1.0)
    host.ask("c", 1, 20.0)
    full(host, "c", 20.0)
    host.prepared("c", 1, 20.2)
    host.unloaded("a", 20.3)
    host.loaded("c", 1, 21.0)
    host.began("c", 21.0)
    host.idle("c", 21.0)
    host.measured(320.0)
    assert host.ask("a", 1, 321.0) == [Load("a", "called-again")]


def test_a_server_that_is_full_with_no_model_can_not_hold_this_one() -> None:
    host = Host()
    host.ask("a", 1, 0.0)
    message = "the server has no memory for model a, and has no other model"
    assert full(host, "a", 1.0) == [RefuseParked("a", "load-failed", message, 5.0)]


def test_a_server_that_is_full_while_a_model_answers_loses_an_idle_one() -> None:
    host = Host()
    host.bring("a", 1, 0.0)
    host.bring("b", 1, 1.0)
    host.began("a", 20.0)
    assert full(host, "a", 20.0) == [Unload("b", "over-budget")]


def test_the_only_model_of_a_full_server_stays() -> None:
    host = Host()
    host.bring("a", 1, 0.0)
    host.began("a", 20.0)
    assert full(host, "a", 20.0) == []


def test_how_long_a_first_load_takes_is_guessed_by_others_and_hardly_by_its_size() -> None:
    """Libraries that a process shares make the second model small; a third is not to be refused
    because its estimate is a thousand times larger."""
    host = Host(host=10_000)
    host.bring("small", 1, 0.0, load_s=0.5)
    host.request("large", 10.0)
    host.prepared("large", 5000, 10.0)
    assert host.request("large", 10.5, 12.5) == []
    refused, *_ = host.request("large", 11.0, 11.9)
    assert isinstance(refused, RefuseParked)
    assert refused.reason == "not-in-time"
