"""Models of known size load beside one another, within the budget; of unknown size, alone."""

from __future__ import annotations

from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Admit, Load, Prepare, Unload


def test_models_of_known_size_load_side_by_side() -> None:
    host = Host(loads_max=2)
    assert host.ask("a", 10, 0.0) == [Load("a", "first-call")]
    assert host.ask("b", 10, 0.1) == [Load("b", "first-call")]
    assert host.ask("c", 10, 0.2) == [], "as many as may load at once"
    assert host.loaded("b", 10, 1.0) == [Admit("b", "loaded"), Load("c", "first-call")]


def test_a_model_of_unknown_size_loads_alone_and_nobody_begins_beside_it() -> None:
    host = Host(loads_max=3)
    assert host.ask("new", 10, 0.0, sized=False) == [Load("new", "first-call", alone=True)]
    assert host.ask("a", 10, 0.1) == []
    assert host.ask("b", 10, 0.2) == []
    assert host.loaded("new", 10, 1.0) == [
        Admit("new", "loaded"),
        Load("a", "first-call"),
        Load("b", "first-call"),
    ]


def test_nobody_passes_a_model_that_waits_to_load_alone() -> None:
    """Else those who come all the time would keep it waiting for ever."""
    host = Host(loads_max=3)
    assert host.ask("a", 10, 0.0) == [Load("a", "first-call")]
    assert host.ask("new", 10, 0.1, sized=False) == []
    assert host.ask("b", 10, 0.2) == []
    assert host.loaded("a", 10, 1.0) == [
        Admit("a", "loaded"),
        Load("new", "first-call", alone=True),
    ]
    assert host.loaded("new", 10, 2.0) == [Admit("new", "loaded"), Load("b", "first-call")]


def test_the_room_of_a_model_that_waits_to_load_alone_is_kept_for_it() -> None:
    host = Host(loads_max=3)
    host.bring("old", 40, 0.0)
    assert host.ask("a", 30, 1.0) == [Load("a", "first-call")]
    assert host.ask("new", 30, 1.1, sized=False) == []
    assert host.ask("b", 30, 1.2) == [Unload("old", "least-recently-used", "b")]
    assert host.unloaded("old", 1.3) == []
    assert host.loaded("a", 30, 2.0) == [
        Admit("a", "loaded"),
        Load("new", "first-call", alone=True),
    ]


def test_each_load_reserves_what_it_needs_before_it_begins() -> None:
    """What running loads will take is not free, though it can't be seen yet."""
    host = Host(loads_max=3)
    assert host.ask("a", 50, 0.0) == [Load("a", "first-call")]
    assert host.ask("b", 40, 0.0) == [Load("b", "first-call")]
    assert host.ask("c", 20, 0.0) == []
    assert host.machine.snapshot()["memory"]["committed"]["host_bytes"] == 90
    assert host.loaded("a", 30, 1.0) == [Admit("a", "loaded"), Load("c", "first-call")]


def test_room_is_made_while_others_load_and_is_waited_for() -> None:
    host = Host(loads_max=2)
    host.bring("old", 60, 0.0)
    assert host.ask("a", 40, 1.0) == [Load("a", "first-call")]
    assert host.ask("b", 50, 1.1) == [Unload("old", "least-recently-used", "b")]
    assert host.unloaded("old", 1.2) == [Load("b", "room-made")]


def test_room_is_made_for_as_many_as_may_load_at_once_and_not_for_all_who_wait() -> None:
    """Those who are evicted too early are called again meanwhile, and have to be loaded again."""
    host = Host(loads_max=2)
    for at in range(10):
        host.bring(f"m-{at}", 10, float(at))
    gone = [host.ask(f"new-{at}", 10, 20.0 + at) for at in range(4)]
    assert gone == [
        [Unload("m-0", "least-recently-used", "new-0")],
        [Unload("m-1", "least-recently-used", "new-1")],
        [],
        [],
    ]
    assert host.unloaded("m-0", 30.0) == [Load("new-0", "room-made")]
    assert host.unloaded("m-1", 30.0) == [Load("new-1", "room-made")]
    assert host.loaded("new-0", 10, 31.0) == [
        Admit("new-0", "loaded"),
        Unload("m-2", "least-recently-used", "new-2"),
    ]


def test_once_a_model_was_measured_here_its_size_is_known() -> None:
    host = Host(loads_max=2)
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0, sized=False)
    host.loaded("a", 12, 1.0)
    host.idle("a", 1.0)
    host.crashed("a", 2.0)
    assert host.ask("b", 10, 3.0) == [Load("b", "first-call")]
    assert host.ask("a", 10, 3.1, sized=False) == [Load("a", "called-again")]
    assert host.explain("a")["footprint"]["host_bytes"] == 12


def test_another_content_has_another_size() -> None:
    host = Host(loads_max=2)
    host.request("a", 0.0)
    host.prepared("a", 10, 0.0, artifact="one", sized=False)
    host.loaded("a", 10, 1.0)
    host.idle("a", 1.0)
    assert host.replaced("a", 2.0) == [Unload("a", "replaced")]
    assert host.unloaded("a", 2.1) == [Prepare("a", "replaced")]
    assert host.ask("b", 10, 3.0) == [Load("b", "first-call")]
    assert host.request("a", 3.1) == []
    assert host.prepared("a", 10, 3.2, artifact="two", sized=False) == []
    assert host.loaded("b", 10, 4.0) == [
        Admit("b", "loaded"),
        Load("a", "called-again", alone=True),
    ]


def test_a_load_that_fails_makes_way_for_the_next() -> None:
    host = Host(loads_max=2)
    assert host.ask("new", 10, 0.0, sized=False) == [Load("new", "first-call", alone=True)]
    assert host.ask("a", 10, 0.1) == []
    assert host.failed("new", 1.0)[-1] == Load("a", "first-call")
    assert host.ask("b", 10, 1.1) == [Load("b", "first-call")]
    assert host.crashed("a", 2.0) == [Prepare("a", "first-call")]
    assert host.used == bytes_(0)
