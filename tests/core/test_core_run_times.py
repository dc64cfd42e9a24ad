"""Learned run times: what is known of sizes that were seen, and assumed of those that were not."""

from __future__ import annotations

import random

import pytest

from penstock.core.batching import BatchSpec
from penstock.core.run_times import RunTimes


def measured(*runs: tuple[int, int, float], **spec: object) -> RunTimes:
    return RunTimes(BatchSpec(runs_measured=runs, **({"rows_max": 16} | spec)))  # type: ignore[arg-type]


def test_before_anything_is_known_nothing_is_forecast() -> None:
    runs = RunTimes(BatchSpec(rows_max=16))
    assert runs.mean_s == runs.high_s == [0.0] * 5
    assert runs.rows_within(0.01, 0, 16) == 16


def test_one_size_alone_costs_as_much_below_and_in_proportion_above() -> None:
    runs = measured((4, 0, 1.0))
    assert runs.mean_s == [1.0, 1.0, 1.0, 2.0, 4.0]
    assert runs.high_s == [1.5, 1.5, 1.5, 3.0, 6.0]


def test_sizes_that_were_not_seen_lie_on_the_line_through_those_that_were() -> None:
    runs = measured((1, 0, 1.5), (4, 0, 3.0))  # 1 s and half a second per row
    assert runs.mean_s == pytest.approx([1.5, 2.0, 3.0, 5.0, 9.0])
    assert runs.saved_s(0) == pytest.approx(1.0)


def test_a_longer_bucket_costs_in_proportion_and_a_shorter_one_as_much() -> None:
    runs = measured((1, 32, 1.0), rows_max=1, buckets=(16, 32, 64))
    assert runs.mean_s == [1.0, 1.0, 2.0]
    runs.learn(1, 0, 0.25)
    assert runs.mean_s == [0.25, 1.0, 2.0]


def test_a_measured_length_beyond_the_last_bucket_belongs_to_it() -> None:
    assert measured((1, 500, 1.0), rows_max=1, buckets=(16, 64)).mean_s == [1.0, 1.0]


def test_the_mean_follows_and_the_percentile_is_rarely_exceeded() -> None:
    """Lognormal run times of mean 1 s and sigma 0.25: their 99th percentile is 1.73 s."""
    runs, rng = RunTimes(BatchSpec()), random.Random(1)
    high = []
    for number in range(20_000):
        runs.learn(1, 0, rng.lognormvariate(-0.03125, 0.25))
        if number > 2000:
            high.append(runs.high_s[0])
    assert 0.7 < runs.mean_s[0] < 1.3
    assert 1.6 < sum(high) / len(high) < 2.0


def test_warm_up_is_forgotten_with_the_first_run_that_takes_less_than_half() -> None:
    runs = RunTimes(BatchSpec())
    runs.learn(1, 0, 8.0)
    runs.learn(1, 0, 1.0)
    assert (runs.mean_s, runs.high_s) == ([1.0], [1.5])


def test_a_size_not_seen_for_long_is_forgotten() -> None:
    """What was slow while a neighbour used the machine must not be believed for ever."""
    runs = RunTimes(BatchSpec(rows_max=2))
    runs.learn(2, 0, 9.0)
    for _ in range(1100):
        runs.learn(1, 0, 1.0)
    assert runs.mean_s == [1.0, 2.0]


def test_rows_within_a_time_are_found_between_the_sizes() -> None:
    runs = measured((1, 0, 1.0), (2, 0, 2.0), (4, 0, 4.0), (8, 0, 8.0), (16, 0, 16.0))
    assert [runs.rows_within(limit_s, 0, 16) for limit_s in (0.5, 1.0, 3.0, 7.0, 99.0)] == [
        0, 1, 3, 7, 16,
    ]  # fmt: skip
    assert runs.rows_within(99.0, 0, 5) == 5


def test_a_snapshot_names_the_sizes_that_were_seen() -> None:
    runs = measured((3, 60, 0.5), rows_max=4, buckets=(16, 64))
    assert runs.snapshot() == [
        {"bucket": 64, "rows": 4, "runs": 1, "run_s_mean": 0.5, "run_s_p99": 0.75}
    ]
