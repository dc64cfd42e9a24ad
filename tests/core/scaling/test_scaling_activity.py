"""What activities say. People and programs read these texts: AWS's words, and numbers."""

from __future__ import annotations

import pytest

from penstock.core.scaling import activity
from penstock.core.scaling.spec import VARIANT


@pytest.mark.parametrize(
    ("low", "high", "done"),
    [
        (2, None, "min capacity to 2"),
        (None, 8, "max capacity to 8"),
        (0, 8, "min capacity to 0 and max capacity to 8"),
    ],
)
def test_a_schedule_says_which_bounds_it_sets(low: int | None, high: int | None, done: str) -> None:
    assert activity.bounds_description(low, high) == f"Setting {done}"
    assert activity.bounds_message(low, high, crossed=False) == f"Successfully set {done}"
    assert activity.bounds_message(low, high, crossed=True) == (
        f"Failed to set {done}. Reason: the minimum would be above the maximum"
    )


@pytest.mark.parametrize(("ready", "copies"), [(0, "0 copies"), (1, "1 copy"), (2, "2 copies")])
def test_the_fast_path_says_how_many_copies_had_the_load(ready: int, copies: str) -> None:
    assert activity.fast_cause("track", 9, ready) == (
        f"9 requests in flight on {copies} triggered policy track"
    )


def test_a_policy_that_asks_for_the_present_count_is_at_it() -> None:
    assert activity.stays("target-tracking", "") == "at-desired-capacity"
    assert activity.stays("step-scaling", "") == "at-desired-capacity"
    assert activity.stays("capacity-is-coming", "") == "capacity-is-coming"
    assert activity.stays("target-tracking", "not-all-policies-agree") == "not-all-policies-agree"


def test_an_activity_that_was_replaced_names_both_counts() -> None:
    assert activity.overridden(VARIANT, 4, 7) == (
        "The desired instance count of 4 was replaced by 7 before it was reached."
    )
