"""The longest unused go until they are enough, none of them in vain; each stays its minimum."""

from __future__ import annotations

from math import inf

import pytest
from tests.kit.core_residency import Host, bytes_

from penstock.core.residency import Load, ResidencySpec, Unload
from penstock.core.residency.evictor import Evictor, Shortage
from penstock.core.residency.model import State, Table, TargetModel

NOBODY: list[str] = []


def short(host: int, accelerator: int = 0, models: int = 0) -> Shortage:
    return Shortage(bytes_(host, accelerator), models)


def evictor(*sizes: tuple[str, int, int]) -> Evictor:
    """Of loaded models (name, host bytes, accelerator bytes), the longest unused first."""
    table = Table()
    for name, host, accelerator in sizes:
        model = table.of(name)
        for state in (State.QUEUED, State.PREPARING, State.PREPARED, State.LOADING, State.LOADED):
            table.move(model, state, now=0.0)
        model.measure(bytes_(host, accelerator))
    return Evictor(ResidencySpec(budget=bytes_(100, 100), residency_s_min=0.0), table)


def gone(machine: Evictor, shortage: Shortage) -> list[str]:
    return [model.name for model in machine.victims(shortage, now=100.0, due=200.0)[0]]


def test_the_longest_unused_go_until_they_are_enough() -> None:
    assert gone(evictor(("a", 10, 0), ("b", 10, 0), ("c", 10, 0)), short(11)) == ["a", "b"]
    assert gone(evictor(("a", 10, 0), ("b", 10, 0), ("c", 10, 0)), short(20)) == ["a", "b"]


def test_who_turns_out_not_to_be_needed_stays() -> None:
    assert gone(evictor(("small", 10, 0), ("large", 50, 0)), short(50)) == ["large"]
    assert gone(evictor(("small", 10, 0), ("large", 50, 0)), short(51)) == ["small", "large"]


def test_of_those_not_needed_the_one_used_last_stays() -> None:
    models = ("a", 10, 0), ("b", 10, 0), ("c", 20, 0)
    assert gone(evictor(*models), short(30)) == ["a", "c"]


def test_one_of_many_that_is_enough_does_not_go_before_those_unused_for_longer() -> None:
    assert gone(evictor(("a", 5, 0), ("b", 5, 0), ("c", 10, 0)), short(10)) == ["a", "b"]


def test_a_model_goes_only_for_what_it_holds() -> None:
    models = ("host", 60, 0), ("accelerator", 0, 60), ("both", 50, 50)
    assert gone(evictor(*models), short(0, 60)) == ["accelerator"]
    assert gone(evictor(*models), short(60)) == ["host"]
    assert gone(evictor(*models), short(50, 50)) == ["host", "accelerator"]
    assert gone(evictor(*models), short(61, 1)) == ["host", "both"]


def test_places_are_missing_like_memory_and_both_are_filled() -> None:
    models = ("a", 0, 0), ("b", 30, 0), ("c", 10, 0)
    assert gone(evictor(*models), short(0, models=2)) == ["a", "b"]
    assert gone(evictor(*models), short(30, models=1)) == ["b"]
    assert gone(evictor(*models), short(10, models=2)) == ["a", "b"]
    assert gone(evictor(*(("d", 0, 0), *models)), short(30, models=2)) == ["d", "b"]


def test_where_all_of_them_are_not_enough_the_first_that_helps_goes() -> None:
    """What is missing is held by nobody who is known: one goes, and the rest is measured again."""
    machine = evictor(("a", 0, 50), ("b", 10, 0), ("c", 10, 0))
    assert gone(machine, short(21)) == ["b"]
    victims, again_at = machine.victims(short(21), now=1.0, due=2.0, asked=False)
    assert (victims, again_at) == ([], float("inf"))
    assert [one.name for one in machine.all_that_help(short(21), now=1.0)] == ["b", "c"]
    assert [one.name for one in machine.all_that_help(short(10), now=1.0)] == ["b"]


def test_where_all_of_them_are_not_enough_each_stays_its_minimum_unless_that_is_too_late() -> None:
    machine = evictor(("a", 0, 50), ("b", 10, 0), ("c", 10, 0))
    table = machine._table
    table.models["b"].loaded_at = 2.0
    stays = Evictor(ResidencySpec(budget=bytes_(100, 100), residency_s_min=7.0), table)
    assert stays.victims(short(21), now=3.0, due=7.0) == ([], 7.0), "c has stayed then"
    assert stays.victims(short(21), now=3.0, due=6.9) == ([table.models["b"]], inf)
    assert stays.victims(short(21), now=7.0, due=inf) == ([table.models["c"]], inf)
    assert stays.victims(short(21), now=9.0, due=inf) == ([table.models["b"]], inf)


def test_those_who_are_pinned_or_answer_do_not_go_and_pinned_ones_are_not_waited_for() -> None:
    host = Host(100)
    host.bring("pinned", 40, 0.0)
    host.bring("busy", 30, 1.0)
    host.bring("idle", 30, 2.0)
    host.pin("pinned", 3.0)
    host.began("busy", 3.0)
    assert host.ask("new", 60, 10.0) == [], "the busy one is enough once it is idle"
    assert host.idle("busy", 11.0) == [
        Unload("idle", "least-recently-used", "new"),
        Unload("busy", "least-recently-used", "new"),
    ]


def test_who_is_pinned_is_none_of_those_that_could_be_enough() -> None:
    machine = evictor(("pinned", 20, 0), ("a", 10, 0), ("b", 10, 0))
    machine._table.models["pinned"].pin(True)
    assert gone(machine, short(21)) == ["a"], "nobody holds it: one goes, and it is measured again"
    machine._table.models["b"].admit(1)
    assert gone(machine, short(20)) == NOBODY, "b is waited for"
    assert gone(machine, short(0, models=2)) == NOBODY, "so it is"


def test_each_that_may_go_is_named_once_at_the_very_end_of_its_minimum_too() -> None:
    machine = evictor(("a", 10, 0), ("b", 10, 0))
    first = machine.first_to_go(now=0.0, besides=machine._table.models["b"])
    assert [model.name for model in first] == ["a"]
    machine._table.models["b"].admit(1)
    late = Evictor(ResidencySpec(budget=bytes_(100), residency_s_min=7.0), machine._table)
    assert late.victims(short(20), now=7.0, due=100.0) == ([], float("inf"))


# minimum residency


@pytest.mark.parametrize(
    ("load_s", "prepare_s", "stays"),
    [
        (1.0, 0.0, 3.0),
        (1.0, 0.5, 4.5),  # fetching it again is a part of what it costs
        (0.01, 0.0, 0.5),
        (60.0, 0.0, 10.0),
        (None, None, 0.5),  # never loaded
    ],
)
def test_three_reloads_and_never_less_than_half_a_second_nor_more_than_ten(
    load_s: float | None, prepare_s: float | None, stays: float
) -> None:
    model = TargetModel("m")
    if load_s is not None and prepare_s is not None:
        model.learn_load(load_s)
        model.learn_prepare(prepare_s)
    assert Evictor(ResidencySpec(budget=bytes_(1)), Table()).stays_until(model) == stays


@pytest.mark.parametrize("stays", [0.0, 100.0])
def test_what_is_set_holds_whatever_a_load_costs(stays: float) -> None:
    model = TargetModel("m")
    model.learn_load(5.0)
    spec = ResidencySpec(budget=bytes_(1), residency_s_min=stays)
    assert Evictor(spec, Table()).stays_until(model) == stays


def test_who_needs_its_place_waits_until_its_minimum_is_over() -> None:
    host = Host(100, residency_s_min=None)
    host.bring("a", 100, 0.0, load_s=1.0)
    assert host.ask("b", 100, 1.0) == []
    assert host.deadline == 3.0
    assert host.timer(3.0) == [Unload("a", "least-recently-used", "b")]
    assert host.unloaded("a", 3.1) == [Load("b", "room-made")]


def test_the_one_that_is_cheap_to_have_back_goes_sooner() -> None:
    host = Host(100, residency_s_min=None)
    host.bring("dear", 50, 0.0, load_s=3.0)
    host.bring("cheap", 50, 1.0, load_s=0.2)
    assert host.ask("new", 50, 1.2) == []
    assert host.deadline == 1.6
    assert host.timer(1.6) == [Unload("cheap", "least-recently-used", "new")]


def test_where_it_can_not_be_waited_for_those_within_their_minimum_go_last() -> None:
    host = Host(100, residency_s_min=10.0)
    host.bring("within", 50, 5.0)
    host.called("within", 6.0)
    host.bring("over", 50, 0.0)
    host.called("over", 7.0)
    host.request("new", 12.0, 13.5)
    assert host.prepared("new", 50, 12.0) == [Unload("over", "least-recently-used", "new")]


def test_without_a_minimum_models_take_turns() -> None:
    host = Host(100, residency_s_min=0.0)
    host.bring("a", 100, 0.0)
    for at in range(1, 20):
        assert host.swap("ab"[at % 2], 100, 0.1 * at) == ["ab"[1 - at % 2]]
