"""The window of observations: what it covers, forgets, and counts."""

from __future__ import annotations

import pytest
from tests.kit.core_scaling import seen

from penstock.core.scaling.observed import LoadObserved, LoadWindow


def window(*observations: LoadObserved) -> LoadWindow:
    made = LoadWindow()
    for one in observations:
        made.add(one)
    return made


def test_an_empty_window_knows_nothing() -> None:
    empty = LoadWindow()
    assert (empty.latest(), empty.covers(0.0), empty.since(0.0)) == (None, False, [])
    assert (empty.ready_min(0.0), empty.ready_max(0.0), empty.arrivals(0.0)) == (0, 0, 0)


def test_what_is_not_said_of_an_observation_did_not_happen() -> None:
    """Requests in flight, come, failed: none; the count may change, and was reached."""
    one = LoadObserved(at=0.0, capacity=1, ready=1)
    assert (one.in_flight, one.arrivals, one.errors) == (0, 0, 0)
    assert (one.scalable, one.settled, one.out_of_reach) == (True, True, False)


def test_it_covers_the_time_since_its_first_observation() -> None:
    held = window(seen(10.0, 1), seen(20.0, 1))
    assert [held.covers(since) for since in (9.9, 10.0, 20.0)] == [False, True, True]


def test_a_moment_is_seen_by_the_observation_that_was_valid_then() -> None:
    held = window(seen(10.0, 5, 1), seen(20.0, 5, 2), seen(30.0, 5, 4))
    for since, ready in ((5.0, [1, 2, 4]), (10.0, [1, 2, 4]), (19.9, [1, 2, 4]), (20.0, [2, 4]),
                         (29.0, [2, 4]), (30.0, [4]), (99.0, [4])):  # fmt: skip
        assert [one.ready for one in held.since(since)] == ready, since
        assert (held.ready_min(since), held.ready_max(since)) == (ready[0], ready[-1])


def test_a_clock_that_was_set_back_takes_back_what_was_seen_after_it() -> None:
    held = window(seen(10.0, 1), seen(20.0, 2), seen(30.0, 3), seen(20.0, 4))
    assert [(one.at, one.capacity) for one in held.since(0.0)] == [(10.0, 1), (20.0, 2), (20.0, 4)]
    held.add(seen(5.0, 9))
    assert [(one.at, one.capacity) for one in held.since(0.0)] == [(5.0, 9)]


def test_twenty_minutes_are_kept() -> None:
    held = window(seen(0.0, 1), seen(1.0, 2), seen(1200.0, 3))
    assert [one.at for one in held.since(0.0)] == [0.0, 1.0, 1200.0]
    held.add(seen(1201.5, 4))
    assert [one.at for one in held.since(0.0)] == [1200.0, 1201.5]


@pytest.mark.parametrize(
    ("counts", "grown"),
    [
        ([7], 0),
        ([7, 7, 9], 2),
        ([5, 8, 20], 15),
        ([100, 3, 5], 5),  # the server was started again: 3 came since, then 2 more
        ([100, 0, 0], 0),
    ],
)
def test_a_counter_that_restarted_counts_from_zero(counts: list[int], grown: int) -> None:
    came = window(*(seen(float(at), 1, arrivals=count) for at, count in enumerate(counts)))
    failed = window(*(seen(float(at), 1, errors=count) for at, count in enumerate(counts)))
    assert (came.arrivals(0.0), came.errors(0.0)) == (grown, 0)
    assert (failed.arrivals(0.0), failed.errors(0.0)) == (0, grown)
