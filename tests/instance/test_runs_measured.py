"""A compile report beside a model seeds the batcher, where it speaks of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.description.description import Batching
from penstock.core.batching.batcher import Batcher, RunBatch
from penstock.instance.loading.described import batch_spec, runs_measured
from penstock.runtimes.processor import processor

BATCHING = Batching(rows_max=32, buckets=(16, 128), latency_s_p99_max=0.010)
TIMINGS = [
    {"rows": 1, "tokens": 16, "after_ms": 2.0},
    {"rows": 32, "tokens": 16, "after_ms": 8.0},
    {"rows": 8, "tokens": 128, "after_ms": 9.0},
]


def reported(folder: Path, **changed: Any) -> Path:
    report = {"processor": processor(), "threads": 2, "timings": TIMINGS} | changed
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_times_are_taken_as_they_were_measured(tmp_path: Path) -> None:
    found = runs_measured(reported(tmp_path), BATCHING, threads=2)
    assert found == ((1, 16, 0.002), (32, 16, 0.008), (8, 128, 0.009))


def test_another_number_of_threads_never_makes_a_seed_too_long(tmp_path: Path) -> None:
    """Fewer threads: not below what more took. More threads: at best in proportion."""
    reported(tmp_path)
    assert runs_measured(tmp_path, BATCHING, threads=1)[0] == (1, 16, 0.002)
    assert runs_measured(tmp_path, BATCHING, threads=4)[0] == (1, 16, 0.001)


def test_figures_of_another_processor_say_nothing_here(tmp_path: Path) -> None:
    assert runs_measured(reported(tmp_path, processor="a faster one"), BATCHING, threads=2) == ()


def test_figures_of_another_instruction_set_say_nothing_here(tmp_path: Path) -> None:
    reported(tmp_path, instruction_set="SSE41")
    assert runs_measured(tmp_path, BATCHING, threads=2) == ()


def test_shapes_that_are_not_served_are_left_out(tmp_path: Path) -> None:
    reported(tmp_path)
    small = Batching(rows_max=8, buckets=(16,))
    assert runs_measured(tmp_path, small, threads=2) == ((1, 16, 0.002),)


def test_without_buckets_length_says_nothing(tmp_path: Path) -> None:
    timings = [{"rows": 4, "tokens": 0, "after_ms": 1.0}]
    found = runs_measured(reported(tmp_path, timings=timings), Batching(rows_max=4), threads=2)
    assert found == ((4, 0, 0.001),)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "not json", '{"timings": [{}]}', '{"timings": 7, "threads": 0}'],
)
def test_a_report_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    assert runs_measured(tmp_path, BATCHING, threads=2) == ()


@pytest.mark.parametrize("timing", [-1.0, 0.0, 1e999, "soon", None])
def test_times_that_are_none_are_left_out(tmp_path: Path, timing: Any) -> None:
    timings = [{"rows": 1, "tokens": 16, "after_ms": timing}]
    assert runs_measured(reported(tmp_path, timings=timings), BATCHING, threads=2) == ()


def test_an_artifact_without_a_report_has_no_seeds(tmp_path: Path) -> None:
    assert runs_measured(tmp_path, BATCHING, threads=2) == ()


def test_the_first_batch_is_of_a_size_that_ends_within_the_level(tmp_path: Path) -> None:
    """A row costs 2 ms alone and 64 ms in 32: within 10 ms at most 4 go together.

    Forty rows have come before the copy's first batch. Without a report nothing is forecast, so
    the first batch would be of all 32, and its answers six times too late.
    """
    timings = [
        {"rows": 1, "tokens": 16, "after_ms": 2.0},
        {"rows": 4, "tokens": 16, "after_ms": 8.0},
        {"rows": 32, "tokens": 16, "after_ms": 64.0},
    ]
    reported(tmp_path, timings=timings)
    seeds = runs_measured(tmp_path, BATCHING, threads=2)

    def first(spec: Any) -> RunBatch:
        batcher = Batcher(spec)
        actions = [a for at in range(40) for a in batcher.add(at, length=16, now=1.0)]
        actions += batcher.on_timer(now=1.0)[0]
        return next(action for action in actions if isinstance(action, RunBatch))

    assert first(batch_spec(BATCHING, 1)).rows == 32
    assert first(batch_spec(BATCHING, 1, seeds=seeds)).rows == 4
