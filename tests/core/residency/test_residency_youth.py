"""A model that was just loaded stays for some times what having it back costs, within bounds."""

from __future__ import annotations

import pytest
from tests.core.residency.residency_words import Host, bytes_

from penstock.core.residency import Load, ResidencySpec, Unload
from penstock.core.residency.model import TargetModel
from penstock.core.residency.youth import stays_s


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
    model.load_s, model.prepare_s = load_s, prepare_s
    assert stays_s(ResidencySpec(budget=bytes_(1)), model) == stays


@pytest.mark.parametrize("stays", [0.0, 100.0])
def test_what_is_set_holds_whatever_a_load_costs(stays: float) -> None:
    model = TargetModel("m")
    model.load_s = 5.0
    assert stays_s(ResidencySpec(budget=bytes_(1), residency_s_min=stays), model) == stays


def test_who_needs_its_place_waits_until_it_is_old_enough() -> None:
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


def test_a_model_that_comes_and_goes_all_the_time_is_loaded_five_times_within_16_s() -> None:
    """Two models, of which one fits, called by turns every second; each loads in a tenth of one."""
    host = Host(100, residency_s_min=None, prefetch=False)
    for at in range(5):
        now = 2.0 * at
        host.swap("a", 100, now, load_s=0.1) if at else host.bring("a", 100, now, load_s=0.1)
        if at < 4:
            assert host.swap("b", 100, now + 1.0, load_s=0.1) == ["a"]
    assert host.ask("b", 100, 9.0) == [], "a came five times since 0 s, and stays until 16 s"
    assert host.deadline == 16.0
    assert host.timer(16.0) == [Unload("a", "least-recently-used", "b")]
    assert host.unloaded("a", 16.0) == [Load("b", "room-made")]


def test_one_that_stays_as_long_as_the_settings_say_is_not_held_longer() -> None:
    host = Host(100, residency_s_min=0.0)
    host.bring("a", 100, 0.0)
    for at in range(1, 20):
        assert host.swap("ab"[at % 2], 100, 0.1 * at) == ["ab"[1 - at % 2]]
