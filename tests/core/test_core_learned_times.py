"""Learned times: what one slow run counts as, and when a change is believed."""

from __future__ import annotations

import pytest

from penstock.core.learned_times import LearnedTime, OutlierFilter


def test_a_time_counts_as_at_most_four_times_the_estimate() -> None:
    seen = [OutlierFilter().cut(seen_s, 2.0) for seen_s in (1.0, 8.0, 8.5, 300.0)]
    assert seen == [(1.0, False), (8.0, False), (8.0, False), (8.0, False)]


def test_without_an_estimate_any_time_is_believed() -> None:
    assert OutlierFilter().cut(300.0, 0.0) == (300.0, False)


def test_the_fourth_outlier_in_a_row_begins_anew_from_the_shortest() -> None:
    outliers = OutlierFilter()
    seen = [outliers.cut(seen_s, 1.0) for seen_s in (50.0, 30.0, 40.0, 60.0)]
    assert seen == [(4.0, False), (4.0, False), (4.0, False), (30.0, True)]
    # What follows is compared with the new estimate, and counted from none.
    assert outliers.in_a_row == 0
    seen = [outliers.cut(seen_s, 10.0) for seen_s in (90.0, 70.0, 80.0, 100.0)]
    assert seen == [(40.0, False), (40.0, False), (40.0, False), (70.0, True)]


def test_just_four_times_the_estimate_is_no_outlier() -> None:
    outliers = OutlierFilter()
    assert [outliers.cut(4.0, 1.0) for _ in range(5)] == [(4.0, False)] * 5
    assert outliers.in_a_row == 0


def test_a_usual_time_between_outliers_begins_their_count_anew() -> None:
    outliers = OutlierFilter()
    times = (50.0, 50.0, 50.0, 1.0, 70.0, 60.0, 65.0, 80.0)
    seen = [outliers.cut(seen_s, 1.0) for seen_s in times]
    assert [anew for _, anew in seen] == [False] * 7 + [True]
    assert seen[-1] == (60.0, True)


def test_a_mean_is_the_first_time_and_then_follows_by_its_weight() -> None:
    learned = LearnedTime(1 / 4)
    assert learned.mean_s == 0.0
    means = []
    for seen_s in (8.0, 16.0, 2.0):
        learned.learn(seen_s)
        means.append(learned.mean_s)
    assert means == [8.0, 10.0, 8.0]


@pytest.mark.parametrize("slower", [5.0, 30.0, 1000.0])
def test_a_mean_moves_little_for_one_outlier_and_follows_a_change_within_four(
    slower: float,
) -> None:
    learned = LearnedTime(1 / 8)
    learned.learn(1.0)
    learned.learn(slower)
    assert learned.mean_s == 1.375
    for _ in range(60):
        learned.learn(1.0)
    assert learned.mean_s == pytest.approx(1.0, abs=0.001)
    for _ in range(4):
        learned.learn(1000.0 * slower)
    assert learned.mean_s == 1000.0 * slower
