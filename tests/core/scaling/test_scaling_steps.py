"""Step scaling: which step holds, and what it makes of the capacity."""

from __future__ import annotations

import pytest
from tests.kit.core_scaling import fired, steps

from penstock.core.scaling.spec import StepAdjustment
from penstock.core.scaling.step import fault_of, wished

#: threshold 50: 50 to 60 adds one, above 60 adds three; 40 to 50 takes one, below 40 takes two
LADDER = steps((None, -10, -2), (-10, 0, -1), (0, 10, 1), (10, None, 3))


@pytest.mark.parametrize(
    ("value", "capacity"),
    [(50.0, 6), (59.9, 6), (60.0, 8), (1000.0, 8)],
)
def test_above_the_threshold_the_lower_bound_belongs_to_a_step(value: float, capacity: int) -> None:
    assert wished(LADDER, fired("step", value, threshold=50.0), 5) == capacity


@pytest.mark.parametrize(
    ("value", "capacity"),
    [(50.0, 4), (40.1, 4), (40.0, 3), (0.0, 3)],
)
def test_below_the_threshold_the_upper_bound_belongs_to_a_step(value: float, capacity: int) -> None:
    assert wished(LADDER, fired("step", value, threshold=50.0, high=False), 5) == capacity


def test_a_value_that_no_step_holds_asks_for_nothing() -> None:
    """AWS allows a policy that only scales out to be hung on an alarm that looks below."""
    out_only = steps((0, None, 1))
    assert wished(out_only, fired("step", 49.0, threshold=50.0, high=False), 5) is None


@pytest.mark.parametrize(
    ("base", "percent", "capacity"),
    [
        (10, 25, 12),  # 2.5 is 2
        (3, 25, 4),  # 0.75 is 1
        (3, -25, 2),  # -0.75 is -1
        (10, -66, 4),  # -6.6 is -6
        (0, 50, 0),  # half of nothing
        (5, 0, 5),
    ],
)
def test_percentages_are_rounded_toward_zero_but_change_something(
    base: int, percent: int, capacity: int
) -> None:
    policy = steps((0, None, percent), adjustment_type="PercentChangeInCapacity")
    assert wished(policy, fired("step", 5.0), base) == capacity


def test_a_percentage_changes_by_the_minimum_magnitude() -> None:
    """AWS's own example: 25 % of 4 is 1, with a minimum magnitude of 2 it is 2."""
    kind = "PercentChangeInCapacity"
    policy = steps((0, None, 25), adjustment_type=kind, magnitude_min=2)
    assert wished(policy, fired("step", 5.0), 4) == 6
    assert wished(policy, fired("step", 5.0), 0) == 2
    down = steps((None, 0, -10), adjustment_type=kind, magnitude_min=3)
    assert wished(down, fired("step", 5.0, high=False), 10) == 7


def test_an_exact_capacity_is_the_capacity() -> None:
    policy = steps((0, None, 7), adjustment_type="ExactCapacity")
    assert wished(policy, fired("step", 9.0), 2) == 7


def test_a_capacity_is_never_below_zero() -> None:
    assert wished(steps((None, 0, -9)), fired("step", 1.0, high=False), 2) == 0


@pytest.mark.parametrize(
    ("aggregation", "capacity"), [("Average", 2), ("Maximum", 3), ("Minimum", 1)]
)
def test_the_alarms_datapoints_are_aggregated_as_the_policy_says(
    aggregation: str, capacity: int
) -> None:
    policy = steps((None, 2, 0), (2, 4, 1), (4, None, 2), aggregation=aggregation)
    assert wished(policy, fired("step", 5.0, 8.0, 10.0), 1) == capacity


def test_missing_datapoints_that_breach_are_at_the_threshold() -> None:
    assert wished(LADDER, fired("step", threshold=50.0), 5) == 6


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([], "At least one"),
        ([(None, None, 1), (0, 1, 1)], "both be null"),
        ([(5, 5, 1)], "greater than its lower"),
        ([(None, 0, 1), (None, 3, 1)], "At most one"),
        ([(-5, 0, 1)], "null lower bound"),
        ([(0, 5, 1)], "null upper bound"),
        ([(0, 5, 1), (6, None, 2)], "gap"),
        ([(0, 5, 1), (4, None, 2)], "overlap"),
        ([(0, None, 1)], ""),
        ([(None, None, 1)], ""),
        ([(None, -5, -2), (-5, 0, -1), (0, None, 1)], ""),
    ],
)
def test_ranges_of_steps_follow_the_four_rules(rows: list[tuple], part: str) -> None:
    fault = fault_of([StepAdjustment(*row) for row in rows])
    assert part in fault
    assert bool(fault) == bool(part)
