"""What the benchmarks compute from what they measured, by literal cases."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from bench.arithmetic import (
    alternated,
    best,
    capacity,
    keeps_level,
    long_enough,
    median_ratio,
    percentile_ms,
    ratios,
    resampled_range,
    savings,
    share_equal,
    steps_of,
    worst,
)
from bench.batches import counts_in, in_flight_in, mean_rows
from bench.machine import family_of, memory_bytes, memory_sum
from bench.report import cpu_facts, spread


def test_a_percentile_is_the_nearest_rank() -> None:
    hundred = [(at + 1) / 1000 for at in range(100)]
    assert percentile_ms(hundred, 0.99) == 99.0
    assert percentile_ms(hundred, 0.5) == 50.0
    assert percentile_ms([0.001, 0.002, 0.004], 0.99) == 4.0
    assert percentile_ms([0.007], 0.01) == 7.0
    assert percentile_ms([], 0.99) == 0.0


def test_a_ratio_is_of_one_round_and_then_the_median_of_the_rounds() -> None:
    """The median of the ratios, not the ratio of the medians: that would be 20 / 20."""
    assert ratios([10.0, 30.0, 20.0], [20.0, 10.0, 40.0]) == [0.5, 3.0, 0.5]
    assert median_ratio([10.0, 30.0, 20.0], [20.0, 10.0, 40.0]) == 0.5


def test_a_range_is_that_of_other_rounds_of_the_same_kind() -> None:
    """Nine rounds of ten say 1, one says 11: drawn anew it comes up never, or up to four times."""
    rounds = [1.0] * 9 + [11.0]
    assert resampled_range(rounds, lambda of: sum(of) / len(of)) == (1.0, 4.0)
    assert resampled_range([2.0] * 5, lambda of: sum(of) / len(of)) == (2.0, 2.0)


def test_rounds_that_are_not_as_many_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="zip"):
        savings([1.0], [1.0, 2.0])


def test_what_answers_four_times_as_much_saves_three_quarters() -> None:
    assert savings([400.0, 200.0], [100.0, 100.0]) == [0.75, 0.5]


def test_what_answers_less_than_the_peer_saves_less_than_nothing() -> None:
    assert savings([50.0], [100.0]) == [-1.0]


def test_the_best_setting_has_the_highest_median_and_not_the_highest_sample() -> None:
    assert best({"steady": [10.0, 11.0, 12.0], "lucky": [1.0, 9.0, 99.0]}) == "steady"


def test_of_equal_settings_the_first_is_taken() -> None:
    assert best({"first": [5.0], "second": [5.0]}) == "first"


def test_there_is_no_best_of_no_settings() -> None:
    with pytest.raises(ValueError, match="empty"):
        best({})


def test_a_headline_is_the_lowest_ratio_and_says_where_it_was_seen() -> None:
    assert worst({8: 2.5, 32: 1.4, 128: 1.5}) == (32, 1.4)


@pytest.mark.parametrize(
    ("answered", "p99_ms", "kept"),
    [(100, 10.0, True), (100, 10.1, False), (99, 1.0, False)],
)
def test_a_level_is_kept_by_answering_all_with_a_p99_not_above_it(
    answered: int, p99_ms: float, kept: bool
) -> None:
    assert keeps_level(sent=100, answered=answered, p99_ms=p99_ms, level_ms=10.0) is kept


def test_where_nothing_was_asked_no_level_is_kept() -> None:
    assert not keeps_level(sent=0, answered=0, p99_ms=0.0, level_ms=10.0)


def test_capacity_is_the_highest_rate_below_which_none_broke_the_level() -> None:
    """A rate that came out well above a broken one is luck."""
    assert capacity({100.0: True, 200.0: True, 300.0: False, 400.0: True}) == 200.0
    assert capacity({300.0: True, 100.0: True, 200.0: True}) == 300.0


def test_where_the_lowest_rate_broke_the_level_there_is_no_capacity() -> None:
    assert capacity({100.0: False, 200.0: True}) == 0.0
    assert capacity({}) == 0.0


def test_a_climb_rises_in_equal_steps_to_the_rate_itself() -> None:
    assert steps_of(1000.0, 4) == [250.0, 500.0, 750.0, 1000.0]


def test_every_other_round_goes_backwards() -> None:
    assert alternated(["a", "b", "c"], 0) == ["a", "b", "c"]
    assert alternated(["a", "b", "c"], 1) == ["c", "b", "a"]
    assert alternated(["a", "b", "c"], 2) == ["a", "b", "c"]


def test_answers_are_compared_one_by_one() -> None:
    assert share_equal(["a", "b", "c", "d"], ["a", "x", "c", "d"]) == 0.75


def test_no_answers_agree_about_nothing() -> None:
    with pytest.raises(ValueError, match="no answers"):
        share_equal([], [])
    with pytest.raises(ValueError, match="zip"):
        share_equal(["a"], ["a", "b"])


def test_a_spread_is_median_and_range() -> None:
    assert spread([3.0, 1.0, 2.00004]) == {"median": 2.0, "min": 1.0, "max": 3.0, "samples": 3}


METRICS = """\
# TYPE penstock_batch_rows histogram
penstock_batch_rows_bucket{endpoint="a",le="8"} 3
penstock_batch_rows_sum{endpoint="a"} 24
penstock_batch_rows_count{endpoint="a"} 3
penstock_batch_rows_sum{endpoint="b"} 6
penstock_batch_rows_count{endpoint="b"} 2
penstock_requests_total{endpoint="a"} 9
"""


def test_batches_are_counted_over_all_endpoints() -> None:
    assert counts_in(METRICS) == (30.0, 5.0)
    assert counts_in("") == (0.0, 0.0)


def test_mean_rows_are_those_between_two_looks() -> None:
    assert mean_rows((30.0, 5.0), (94.0, 7.0)) == 32.0
    assert mean_rows((30.0, 5.0), (30.0, 5.0)) == 0.0


CPUINFO = """\
processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Some Processor
stepping\t: 8
flags\t\t: fpu avx2 avx512f avx512_vnni amx_int8 sse

processor\t: 1
cpu family\t: 6
flags\t\t: fpu
"""


def test_a_machine_is_told_by_number_and_by_the_instructions_that_matter() -> None:
    assert cpu_facts(CPUINFO) == {
        "cpu_family_model_stepping": "6/143/8",
        "instructions": ["avx2", "avx512f", "avx512_vnni", "amx_int8"],
    }


def test_a_machine_that_is_no_x86_has_features_and_no_such_number() -> None:
    assert cpu_facts("processor\t: 0\nFeatures\t: fp asimd i8mm\n") == {
        "instructions": ["asimd", "i8mm"]
    }


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20}
    assert sorted(family_of(10, parents)) == [10, 11, 12]
    assert family_of(21, parents) == [21]


def test_the_memory_of_several_processes_is_added() -> None:
    one = "00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss: 300 kB\nPss: 200 kB\nPss_Anon: 9 kB\n"
    assert memory_sum([one, one.replace("300", "50")]) == {"rss": 350 << 10, "pss": 400 << 10}
    assert memory_sum([]) == {"rss": 0, "pss": 0}


def test_the_memory_of_a_server_is_that_of_the_processes_below_it_too() -> None:
    argv = ["sh", "-c", "sleep 60 & echo up; wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        try:
            assert shell.stdout.readline() == b"up\n"
            found = memory_bytes(shell.pid)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert found["processes"] == 2
    assert found["rss"] >= found["pss"] > 0


def test_a_run_lasts_until_thirty_batches_have_ended() -> None:
    assert long_enough(5.0, rows=1, rate=1000.0) == 5.0
    assert long_enough(5.0, rows=64, rate=160.0) == 12.0
    assert long_enough(5.0, rows=64, rate=0.0) == 5.0


def test_requests_in_flight_are_those_of_all_endpoints() -> None:
    page = (
        'penstock_in_flight{endpoint="a",variant="all"} 3.0\n'
        'penstock_in_flight{endpoint="b",variant="all"} 2.0\npenstock_batch_rows_sum 7.0\n'
    )
    assert in_flight_in(page) == 5.0
    assert in_flight_in("") == 0.0
