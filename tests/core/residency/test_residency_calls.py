"""Calls between the models of a host: a caller keeps its memory until it is answered."""

from __future__ import annotations

from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Load, RefuseParked, Unload

NO_ROOM = "no-room"


def refused(model: str, need: int, callers: str, budget: int = 100) -> RefuseParked:
    shown = [f"{each / 2**20:.0f} MiB" for each in (need, budget)]
    return RefuseParked(
        model, NO_ROOM,
        f"model {model} needs {shown[0]}, and what waits for calls keeps its memory: {callers}; "
        f"the budget is {shown[1]}",
        calls_only=True,
    )  # fmt: skip


def test_a_call_evicts_others_than_its_caller() -> None:
    host = Host()
    host.bring("caller", 50, 0.0)
    host.bring("idle", 40, 1.0)
    host.began("caller", 20.0)
    assert host.call("called", 40, 20.0, "caller") == [
        Unload("idle", "least-recently-used", "called")
    ]
    assert host.unloaded("idle", 20.1) == [Load("called", "room-made")]
    assert host.loaded("called", 40, 21.0) == [Admit("called", "loaded")]


def test_a_call_that_needs_its_callers_place_is_refused_at_once() -> None:
    """It would be there once the caller is idle, who waits for it."""
    host = Host()
    host.bring("caller", 70, 0.0)
    host.began("caller", 20.0)
    assert host.call("called", 40, 20.0, "caller", deadline=80.0) == [
        refused("called", 40, "caller")
    ]
    assert host.deadline is None
    assert host.idle("caller", 21.0) == []


def test_who_came_through_the_front_door_waits_on_while_the_call_is_refused() -> None:
    host = Host()
    host.bring("caller", 70, 0.0)
    host.began("caller", 20.0)
    assert host.ask("called", 40, 20.0) == []
    assert host.call("called", 40, 20.1, "caller") == [refused("called", 40, "caller")]
    assert host.idle("caller", 21.0) == [Unload("caller", "least-recently-used", "called")]
    assert host.unloaded("caller", 21.1) == [Load("called", "room-made")]


def test_a_call_waits_for_others_that_answer_on_their_own() -> None:
    host = Host()
    host.bring("caller", 40, 0.0)
    host.bring("busy", 50, 1.0)
    host.began("caller", 20.0)
    host.began("busy", 20.0)
    assert host.call("called", 40, 20.0, "caller") == []
    assert host.idle("busy", 21.0) == [Unload("busy", "least-recently-used", "called")]


def test_all_callers_of_a_chain_keep_their_places() -> None:
    host = Host()
    host.bring("first", 40, 0.0)
    host.bring("second", 40, 1.0)
    host.began("first", 20.0)
    host.began("second", 20.0)
    assert host.call("third", 30, 20.0, "first", "second") == [
        refused("third", 30, "first, second")
    ]


def test_two_calls_that_wait_for_each_others_callers_do_not_wait_for_ever() -> None:
    """Each would fit once the other's caller has gone on. One is refused: then the other can."""
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 50, 1.0)
    host.began("a", 20.0)
    host.began("b", 20.0)
    host.call("for-a", 30, 20.0, "a")
    assert host.call("for-b", 30, 20.1, "b") == [refused("for-a", 30, "a, b")]
    assert host.idle("a", 21.0) == [Unload("a", "least-recently-used", "for-b")]
    assert host.unloaded("a", 21.1) == [Load("for-b", "room-made")]


def test_a_call_waits_for_one_whose_own_call_can_be_loaded() -> None:
    host = Host()
    host.bring("a", 50, 0.0)
    host.bring("b", 40, 1.0)
    host.began("a", 20.0)
    host.began("b", 20.0)
    assert host.call("small", 10, 20.0, "b") == [Load("small", "first-call")]
    assert host.call("large", 40, 20.1, "a") == [], "b goes on once small is loaded"
    assert host.loaded("small", 10, 21.0) == [Admit("small", "loaded")]
    assert host.idle("small", 21.5) == []
    assert host.idle("b", 22.0) == [Unload("b", "least-recently-used", "large")]


def test_pinned_models_keep_their_places_too() -> None:
    host = Host()
    host.bring("caller", 40, 0.0)
    host.bring("pinned", 40, 1.0)
    host.pin("pinned", 2.0)
    host.began("caller", 20.0)
    assert host.call("called", 40, 20.0, "caller") == [refused("called", 40, "caller")]


def test_a_call_that_is_given_up_leaves_nothing_behind() -> None:
    host = Host()
    host.bring("caller", 40, 0.0)
    host.bring("busy", 50, 1.0)
    host.began("caller", 20.0)
    host.began("busy", 20.0)
    assert host.call("called", 40, 20.0, "caller", deadline=60.0) == []
    assert host.machine.abandoned("called", now=21.0, deadline=60.0, callers=("caller",)) == []
    assert host.machine.explain("called")["waiting"] == 0
    assert bytes_(90) == host.used
