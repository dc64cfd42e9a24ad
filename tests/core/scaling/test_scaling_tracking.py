"""Target tracking, with the copies that were measured and not those that are wished."""

from __future__ import annotations

import math

import pytest
from tests.kit.core_scaling import fired, low, seen, tracking

from penstock.core.scaling.observed import LoadWindow
from penstock.core.scaling.tracking import needed, wished


def window(*rows: tuple[float, int, int]) -> LoadWindow:
    """(at, capacity, ready)"""
    found = LoadWindow()
    for at, capacity, ready in rows:
        found.add(seen(at, capacity, ready))
    return found


def test_the_capacity_brings_the_metric_to_its_target() -> None:
    """Two copies with 20 requests each, five wished for each."""
    steady = window((0.0, 2, 2), (100.0, 2, 2))
    assert wished(tracking(), fired("t", 9.0, 20.0, at=100.0), 2, steady) == (8, "target-tracking")


def test_copies_that_are_starting_were_not_measured() -> None:
    """One answers, four are wished: 20 in flight on one are 20 in all, and four are enough."""
    starting = window((0.0, 1, 1), (90.0, 4, 1), (100.0, 4, 1))
    policy = tracking()
    assert wished(policy, fired("t", 20.0, at=100.0), 4, starting) == (4, "capacity-is-coming")
    assert wished(policy, fired("t", 30.0, at=100.0), 4, starting) == (6, "target-tracking")


def test_a_datapoint_from_before_copies_came_counts_for_the_copies_before() -> None:
    """Four answer since a second; the newest datapoint is mostly of the time with one."""
    just_came = window((0.0, 4, 1), (99.0, 4, 4), (100.0, 4, 4))
    assert wished(tracking(), fired("t", 18.0, at=100.0), 4, just_came)[0] == 4


def test_the_newest_datapoint_counts_when_it_goes_out() -> None:
    """A ramp is answered where it is, not where it was."""
    steady = window((0.0, 1, 1), (100.0, 1, 1))
    assert wished(tracking(), fired("t", 6.0, 11.0, 16.0, at=100.0), 1, steady)[0] == 4


def test_the_highest_datapoint_counts_when_it_comes_in() -> None:
    steady = window((0.0, 4, 4), (100.0, 4, 4))
    wish = wished(tracking(), low("t", 1.0, 3.6, 0.0, at=100.0), 4, steady)
    assert wish == (3, "target-tracking")  # 4 * 3.6 = 14.4


def test_coming_in_never_exceeds_the_target() -> None:
    """4.4 on each of two is below the low alarm's 4.5, and one could not carry it."""
    steady = window((0.0, 2, 2), (100.0, 2, 2))
    wish = wished(tracking(), low("t", 4.4, 4.4, at=100.0), 2, steady)
    assert wish == (2, "would-exceed-target")


def test_no_load_asks_for_no_copies() -> None:
    steady = window((0.0, 3, 3), (100.0, 3, 3))
    assert wished(tracking(), low("t", 0.0, 0.0, at=100.0), 3, steady) == (0, "target-tracking")


def test_scale_in_can_be_disabled() -> None:
    steady = window((0.0, 3, 3), (100.0, 3, 3))
    policy = tracking(disable_scale_in=True)
    assert wished(policy, low("t", 0.0, at=100.0), 3, steady) == (None, "scale-in-disabled")
    assert wished(policy, fired("t", 10.0, at=100.0), 3, steady)[0] == 6


@pytest.mark.parametrize("alarm", [fired("t", 50.0, at=100.0), low("t", 0.0, at=100.0)])
def test_target_tracking_never_leaves_zero(alarm: object) -> None:
    at_zero = window((0.0, 0, 0), (100.0, 0, 0))
    wish = wished(tracking(), alarm, 0, at_zero)  # type: ignore[arg-type]
    assert wish == (None, "tracking-never-leaves-zero")


def test_no_datapoints_are_no_load_only_where_nobody_called() -> None:
    """Invocations have no datapoint where there was none: capacity comes in nevertheless, but only
    if the target was watched all the time that the alarm looks at: nine periods and two that may
    be late, and two seconds for the last one's way."""
    policy, nothing = tracking(), low("t", at=122.0)
    assert wished(policy, nothing, 3, window((10.0, 3, 3), (122.0, 3, 3)))[0] == 0
    short = window((11.0, 3, 3), (122.0, 3, 3))
    assert wished(policy, nothing, 3, short) == (None, "not-watched-long-enough")
    called = LoadWindow()
    called.add(seen(0.0, 3, arrivals=7))
    called.add(seen(122.0, 3, arrivals=8))
    assert wished(policy, nothing, 3, called) == (None, "no-datapoints")
    busy = LoadWindow()  # one long request, which has not been counted yet
    busy.add(seen(0.0, 3))
    busy.add(seen(122.0, 3, in_flight=1))
    assert wished(policy, nothing, 3, busy) == (None, "no-datapoints")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_asks_for_nothing(value: float) -> None:
    steady = window((0.0, 2, 2), (100.0, 2, 2))
    for alarm in (fired("t", value, at=100.0), low("t", value, at=100.0)):
        assert wished(tracking(), alarm, 2, steady) == (None, "no-datapoints")


@pytest.mark.parametrize(
    ("load", "target", "copies"),
    [
        (10.0, 5.0, 2),
        (10.1, 5.0, 3),
        (3 * (10 / 3), 5.0, 2),  # 10.0 and nothing more, whatever floats make of it
        (0.0, 5.0, 0),
        (1.0, 1.0, 1),
        (1.0, 1e-300, 10**6),
        (1e300, 1e-300, 10**6),
    ],
)
def test_copies_for_a_load(load: float, target: float, copies: int) -> None:
    assert needed(load, target) == copies
