"""Statistic sets and the names of what can be asked of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CallerError
from penstock.metrics.series.statistics import StatisticSet, parse_statistic

ONE_TO_TEN = StatisticSet.of(*map(float, range(1, 11)))


def test_equal_samples_need_no_sketch() -> None:
    stats = StatisticSet.of(3.0, 3.0, 3.0)
    assert stats.sketch is None
    assert (stats.count, stats.total, stats.quantile(0.99)) == (3, 9.0, 3.0)
    stats.add(6.0)
    assert stats.sketch is not None
    assert stats.quantile(0.0) == pytest.approx(3.0, rel=0.01)
    assert stats.quantile(1.0) == pytest.approx(6.0, rel=0.01)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.5]), max_size=8), st.integers(0, 8))
def test_merging_parts_is_adding_the_whole(values: list[float], cut: int) -> None:
    merged = StatisticSet.of(*values[:cut])
    merged.merge(StatisticSet.of(*values[cut:]))
    whole = StatisticSet.of(*values)
    assert list(merged.bins()) == list(whole.bins())
    assert (merged.count, merged.total) == (whole.count, whole.total)


def test_statistics_without_their_values_have_no_percentiles() -> None:
    stats = StatisticSet.from_values(count=4, total=10.0, minimum=1.0, maximum=4.0)
    assert stats.average == 2.5
    assert stats.quantile(0.5) is None
    mixed = StatisticSet.of(1.0, 2.0)
    mixed.merge(stats)
    assert mixed.quantile(0.5) is None
    assert (mixed.count, mixed.maximum) == (6, 4.0)


def test_statistics_that_leave_one_possible_value_have_percentiles() -> None:
    stats = StatisticSet.from_values(count=4, total=8.0, minimum=2.0, maximum=2.0)
    assert stats.quantile(0.5) == 2.0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SampleCount", 10),
        ("Sum", 55),
        ("Average", 5.5),
        ("Minimum", 1),
        ("Maximum", 10),
        ("p0", 1),
        ("p50", 5),
        ("p99.9", 9),
        ("p100", 10),
        ("tm90", 5),  # without the highest tenth: the mean of 1 to 9
        ("TM(10%:90%)", 5.5),
        ("tm(2:4)", 3.5),  # above 2, up to 4
        ("wm90", 5.4),  # the 10 counts as 9
        ("tc90", 9),
        ("ts90", 45),
        ("TC(:3)", 3),
        ("PR(:3)", 30),
        ("PR(3:5)", 20),
        ("IQM", 5.5),
    ],
)
def test_what_a_name_computes(name: str, expected: float) -> None:
    assert parse_statistic(name)(ONE_TO_TEN) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "average",
        "p",
        "p101",
        "p-1",
        "pNaN",
        "tm",
        "tm101",
        "TM(:)",
        "TM(90%:10%)",
        "TM(1:2%)",
        "PR(10%:)",
        "PR(x:)",
        "TM(5:1)",
        "p99; DROP",
        "xx90",
        "TM(nan:1)",
    ],
)
def test_an_unknown_name_is_refused_with_the_choice(name: str) -> None:
    with pytest.raises(CallerError) as caught:
        parse_statistic(name)
    assert caught.value.code == "statistic-unknown"
    assert "Average" in caught.value.hint


def test_a_mean_of_nothing_is_no_value() -> None:
    assert parse_statistic("TM(100:200)")(ONE_TO_TEN) is None
    assert parse_statistic("TC(100:200)")(ONE_TO_TEN) == 0
    assert parse_statistic("p99")(StatisticSet.from_values(2, 3.0, 1.0, 2.0)) is None
