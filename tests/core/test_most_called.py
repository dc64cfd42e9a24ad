"""Names that have a place, on literal timelines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.models.most_called import MostCalled
from penstock.errors import CallerError


def test_a_free_place_goes_to_whoever_comes_first() -> None:
    names = MostCalled(2)
    assert names.called("a", now=0.0) is None
    assert names.called("b", now=0.0) is None
    assert names.called("c", now=0.0) is None
    assert [names.has_place(name) for name in "abc"] == [True, True, False]


def test_a_place_changes_hands_at_twice_the_calls_of_its_rarest_holder() -> None:
    names = MostCalled(2)
    names.called("a", 10, now=0.0)
    names.called("b", 4, now=0.0)
    assert names.called("c", 7, now=0.0) is None
    assert names.called("c", 1, now=0.0) == "b"
    assert names.snapshot() == [("a", 10.0), ("c", 8.0)]
    # What it was called before counts for the way back.
    assert names.called("b", 11, now=0.0) is None
    assert names.called("b", 1, now=0.0) == "c"


def test_no_calls_take_no_place() -> None:
    names = MostCalled(1)
    assert names.called("a", 0, now=0.0) is None
    assert not names.has_place("a")


def test_what_was_called_long_ago_counts_half_each_hour() -> None:
    names = MostCalled(1)
    names.called("old", 100, now=0.0)
    assert names.called("new", 101, now=3599.9) is None
    # 50 and 50.5 and one more
    assert names.called("new", now=3600.0) is None
    assert names.called("new", 50, now=7199.9) == "old"


def test_who_is_forgotten_while_it_has_a_place_gives_it_to_the_next_caller() -> None:
    names = MostCalled(1)
    names.called("old", now=0.0)
    names.called("other", 0, now=3600.0)
    names.called("other", 0, now=7200.0)
    assert names.snapshot() == [("old", 0.0)]
    assert names.called("new", now=7200.0) == "old"
    assert names.snapshot() == [("new", 1.0)]


def test_equal_holders_give_way_in_the_order_of_their_names() -> None:
    names = MostCalled(2)
    names.called("b", now=0.0)
    names.called("a", now=0.0)
    assert names.called("c", 2, now=0.0) == "a"


def test_there_is_at_least_one_place() -> None:
    with pytest.raises(CallerError, match="at least 1"):
        MostCalled(0)


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5), st.floats(0, 5000))),
)
def test_places_and_known_names_stay_within_their_bounds(
    places_max: int, calls: list[tuple[int, int, float]]
) -> None:
    names, now = MostCalled(places_max), 0.0
    for name, count, later_s in calls:
        now += later_s
        names.called(str(name), count, now=now)
        names.check_invariants()


def test_a_flood_of_new_names_is_forgotten_one_by_one() -> None:
    names = MostCalled(1)
    names.called("often", 50, now=0.0)
    for number in range(1000):
        names.called(f"once-{number}", now=0.0)
        names.check_invariants()
    assert names.has_place("often")
