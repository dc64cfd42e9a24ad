"""Learned run times: what is known of sizes that were seen, and assumed of those that were not."""

from __future__ import annotations

import random

import pytest

from penstock.core.batching.batcher import BatchSpec
from penstock.core.batching.run_times import RunTimes


def measured(*runs: tuple[int, int, float], **spec: object) -> RunTimes:
    return RunTimes(BatchSpec(runs_measured=runs, **({"rows_max": 16} | spec)))  # type: ignore[arg-type]


def test_before_anything_is_known_nothing_is_forecast() -> None:
    runs = RunTimes(BatchSpec(rows_max=16))
    assert runs.mean_s == runs.high_s == [0.0] * 5
    assert runs.rows_within(0.01, 0, 16) == 16
    assert (runs.saved_s(0), runs.horizon_s, runs.snapshot()) == (0.0, 0.0, [])


def test_one_size_alone_costs_as_much_below_and_in_proportion_above() -> None:
    runs = measured((4, 0, 1.0))
    assert runs.mean_s == [1.0, 1.0, 1.0, 2.0, 4.0]
    assert runs.high_s == [1.5, 1.5, 1.5, 3.0, 6.0]
    assert runs.horizon_s == 6.0
    assert runs.saved_s(0) == 0.5  # as long as nothing else is known, half of it


def test_sizes_that_were_not_seen_lie_on_the_line_through_those_that_were() -> None:
    runs = measured((1, 0, 1.5), (4, 0, 3.0))  # 1 s and half a second per row
    assert runs.mean_s == pytest.approx([1.5, 2.0, 3.0, 5.0, 9.0])
    assert runs.saved_s(0) == pytest.approx(1.0)


def test_what_was_seen_is_believed_where_it_is_not_on_the_line() -> None:
    runs = measured((1, 0, 1.0), (2, 0, 5.0), (4, 0, 6.0), rows_max=8)
    assert runs.mean_s[:3] == [1.0, 5.0, 6.0]
    assert runs.mean_s[3] == pytest.approx(12.5)  # half a second, and 1.5 s per row


def test_more_rows_never_cost_less_and_no_rows_never_less_than_nothing() -> None:
    falling = measured((1, 0, 4.0), (4, 0, 1.0), rows_max=4)
    assert (falling.mean_s, falling.saved_s(0)) == ([4.0, 2.5, 1.0], 2.5)
    steep = RunTimes(BatchSpec(rows_max=4))
    steep.learn(1, 0, 0.0)
    steep.learn(4, 0, 1.0)
    assert steep.mean_s == pytest.approx([0.0, 0.4, 1.0])
    assert steep.high_s == pytest.approx([0.0, 0.6, 1.5])
    assert steep.saved_s(0) == 0.0


def test_what_was_not_seen_spreads_as_widely_as_the_widest_that_was() -> None:
    runs = RunTimes(BatchSpec(rows_max=4))
    runs.learn(1, 0, 8.0)
    runs.learn(1, 0, 16.0)  # the mean is 12 s, its percentile 14.375 s
    runs.learn(4, 0, 24.0)  # the mean is 24 s, its percentile 36 s
    assert runs.mean_s == pytest.approx([12.0, 16.0, 24.0])
    assert runs.high_s == pytest.approx([14.375, 24.0, 36.0])


def test_a_bucket_between_two_that_were_seen_stands_on_the_shorter_one() -> None:
    runs = measured((1, 16, 1.0), (1, 64, 10.0), rows_max=1, buckets=(16, 32, 64))
    assert runs.mean_s == [1.0, 2.0, 10.0]
    assert [runs.saved_s(bucket) for bucket in range(3)] == [0.5, 0.5, 5.0]


def test_neighbouring_buckets_are_fitted_each_by_itself() -> None:
    runs = measured((1, 16, 1.0), (1, 32, 4.0), rows_max=1, buckets=(16, 32))
    assert (runs.saved_s(0), runs.saved_s(1)) == (0.5, 2.0)


def test_between_two_sizes_the_time_is_in_proportion() -> None:
    runs = measured((1, 0, 1.0), (2, 0, 2.0), (4, 0, 3.0), (7, 0, 9.0), rows_max=7)
    assert [runs.mean_between_s(rows, 0) for rows in range(1, 8)] == [
        1.0, 2.0, 2.5, 3.0, 5.0, 7.0, 9.0
    ]  # fmt: skip


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


def test_how_a_mean_and_its_percentile_follow_run_by_run() -> None:
    runs = RunTimes(BatchSpec())
    runs.learn(1, 0, 8.0)
    assert (runs.mean_s, runs.high_s, runs.horizon_s) == ([8.0], [12.0], 12.0)
    # Half way to 16 s; the deviation goes a sixteenth from 2 s to 8 s, and that is the step.
    runs.learn(1, 0, 16.0)
    assert (runs.mean_s, runs.high_s, runs.horizon_s) == ([12.0], [14.375], 14.375)
    # A third of the way to what is no longer than the percentile: that falls by a 99th of the step.
    runs.learn(1, 0, 14.375)
    assert runs.mean_s == pytest.approx([12.7916667])
    assert runs.high_s == pytest.approx([14.3510101])


def test_a_percentile_is_never_below_its_mean() -> None:
    runs = RunTimes(BatchSpec())
    runs.learn(1, 0, 1.0)
    runs.learn(1, 0, 4.0)
    assert (runs.mean_s, runs.high_s) == ([2.5], [2.5])


def test_what_is_not_seen_follows_every_32nd_run() -> None:
    """One run of 3 rows, then of 4: the mean of the rows goes from 3 to 3.865 of 4."""
    runs = RunTimes(BatchSpec(rows_max=8))
    runs.learn(3, 0, 1.0)
    for _ in range(30):
        runs.learn(4, 0, 1.0)
    assert runs.mean_s[3] == pytest.approx(2.6666667)
    runs.learn(4, 0, 1.0)
    assert runs.mean_s[3] == pytest.approx(2.0699861)


def test_of_a_size_that_is_known_well_every_fourth_run_is_enough() -> None:
    runs = RunTimes(BatchSpec())
    counted = []
    for _ in range(72):
        runs.learn(1, 0, 1.0)
        counted.append(runs.snapshot()[0]["runs"])
    assert counted == [*range(1, 66), 65, 65, 66, 66, 66, 66, 67]


def test_one_slow_run_counts_as_four_times_the_estimate() -> None:
    runs = RunTimes(BatchSpec())
    for _ in range(16):
        runs.learn(1, 0, 1.0)
    runs.learn(1, 0, 40.0)
    assert runs.mean_s == [1.1875]  # a sixteenth of the way to 4 s


def test_a_size_that_is_new_is_an_outlier_by_what_the_others_let_expect() -> None:
    """4 rows are expected to take 2.5 s: the first batch of them took 99."""
    runs = measured((1, 0, 1.0), (2, 0, 1.5), rows_max=4)
    runs.learn(4, 0, 99.0)
    assert runs.mean_s == [1.0, 1.5, 10.0]
    runs.learn(4, 0, 2.5)  # less than half: what came before was warm-up
    assert runs.mean_s == [1.0, 1.5, 2.5]


def test_a_new_size_that_is_slow_for_good_is_believed_with_its_fourth_run() -> None:
    runs = measured((1, 0, 1.0), (2, 0, 1.5), rows_max=4)
    seen = []
    for _ in range(4):
        runs.learn(4, 0, 1000.0)
        seen.append(runs.mean_s[2])
    assert seen == [10.0, 25.0, 50.0, 1000.0]


def test_a_model_that_becomes_slower_for_good_is_believed_within_seven_runs() -> None:
    """Every fourth run is looked at, and after an outlier each: the fourth is the seventh."""
    runs = RunTimes(BatchSpec())
    for _ in range(76):
        runs.learn(1, 0, 1.0)
    seen = []
    for _ in range(7):
        runs.learn(1, 0, 50.0)
        seen.append(round(runs.mean_s[0], 3))
    assert seen == [1.0, 1.0, 1.0, 1.188, 1.41, 1.675, 50.0]
    assert runs.high_s == [75.0]


def test_a_longer_input_is_an_outlier_once_and_is_learned_with_the_next() -> None:
    """A bucket twice as long takes 9 times as long: one run counts as 8 s, the next as it is."""
    runs = measured((1, 16, 1.0), rows_max=1, buckets=(16, 32))
    runs.learn(1, 1, 9.0)
    runs.learn(1, 1, 9.0)
    assert runs.mean_s == [1.0, 8.5]


def test_a_size_seen_once_counts_less_than_one_that_was_seen_often() -> None:
    """Single pairs were slow: what batches of four save is what they say that are run all day."""
    runs = RunTimes(BatchSpec(rows_max=4))
    for _ in range(32):
        runs.learn(1, 0, 1.0)
        runs.learn(4, 0, 2.5)
    runs.learn(2, 0, 6.0)
    for _ in range(31):
        runs.learn(1, 0, 1.0)
    assert runs.mean_s == [1.0, 6.0, 2.5]
    assert runs.saved_s(0) == pytest.approx(0.7114094)


@pytest.mark.parametrize(
    ("first_s", "then_s", "mean_s"),
    [(8.0, 3.0, 3.0), (8.0, 4.0, 6.0), (8.0, 5.0, 6.5)],
)
def test_a_run_of_half_the_time_is_not_yet_a_sign_of_warm_up(
    first_s: float, then_s: float, mean_s: float
) -> None:
    runs = RunTimes(BatchSpec())
    runs.learn(1, 0, first_s)
    runs.learn(1, 0, then_s)
    assert runs.mean_s == [mean_s]


def test_after_eight_runs_nothing_is_taken_for_warm_up() -> None:
    for before, restarts in ((7, True), (8, False)):
        runs = RunTimes(BatchSpec())
        for _ in range(before):
            runs.learn(1, 0, 8.0)
        runs.learn(1, 0, 1.0)
        assert (runs.mean_s == [1.0]) == restarts


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


def test_what_was_measured_beforehand_is_forgotten_after_1024_other_runs() -> None:
    runs = measured((2, 0, 9.0), rows_max=2)
    for _ in range(1023):
        runs.learn(1, 0, 1.0)
    assert runs.mean_s == [1.0, 9.0]
    runs.learn(1, 0, 1.0)
    assert runs.mean_s == [1.0, 2.0]


def test_of_sizes_that_take_just_the_time_the_largest_is_within_it() -> None:
    flat = measured((1, 0, 1.0), (2, 0, 2.0), (4, 0, 2.0), rows_max=4)
    assert flat.rows_within(2.0, 0, 4) == 4


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


def test_without_buckets_a_snapshot_names_sizes_up_to_the_largest_batch() -> None:
    runs = RunTimes(BatchSpec(rows_max=5))
    runs.learn(1, 0, 0.5)
    runs.learn(5, 0, 1.0)
    assert runs.snapshot() == [
        {"bucket": 0, "rows": 1, "runs": 1, "run_s_mean": 0.5, "run_s_p99": 0.75},
        {"bucket": 0, "rows": 5, "runs": 1, "run_s_mean": 1.0, "run_s_p99": 1.5},
    ]
