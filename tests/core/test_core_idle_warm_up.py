"""Shapes are run ahead of callers while nobody is served, one at a time, small ones first."""

from __future__ import annotations

from math import inf

from penstock.core.models.idle_warm_up import IdleWarmUp, IdleWarmUpSpec, LaneShape, WarmUpRun

SPEC = IdleWarmUpSpec(quiet_s=0.5, run_s_max=0.1, free_share_min=0.25)


def shape(width: int, *, rows: int = 1, lane: int = 0) -> LaneShape:
    return LaneShape(lane, rows, width)


def all_runs(warm_up: IdleWarmUp, *, run_s: float = 0.01) -> list[WarmUpRun]:
    """Of a host that stays idle."""
    runs = []
    while (run := warm_up.next_run(quiet_since=0.0, free_share=1.0, now=100.0)) is not None:
        runs.append(run)
        warm_up.ran(run, run_s)
    return runs


def test_nothing_runs_beside_a_request_nor_at_once_after_it() -> None:
    warm_up = IdleWarmUp(SPEC)
    warm_up.loaded("a", [shape(16)])
    assert warm_up.next_run(quiet_since=inf, free_share=1.0, now=10.0) is None  # somebody is served
    assert warm_up.next_at(quiet_since=10.0) == 10.5
    assert warm_up.next_run(quiet_since=10.0, free_share=1.0, now=10.4) is None
    assert warm_up.next_run(quiet_since=10.0, free_share=1.0, now=10.5) == WarmUpRun("a", shape(16))
    assert warm_up.next_at(quiet_since=10.0) == inf  # nothing is left


def test_shapes_run_once_each_the_smallest_first() -> None:
    warm_up = IdleWarmUp(SPEC)
    wide, pair, narrow = shape(64), shape(16, rows=2), shape(16)
    warm_up.loaded("a", [wide, pair, narrow])
    assert [run.shape for run in all_runs(warm_up)] == [narrow, pair, wide]
    assert warm_up.snapshot() == {}


def test_after_a_long_run_larger_shapes_are_left_to_their_callers() -> None:
    warm_up = IdleWarmUp(SPEC)
    warm_up.loaded("a", [shape(16), shape(64), shape(128), shape(64, rows=2), shape(32, rows=4)])
    first = warm_up.next_run(quiet_since=0.0, free_share=1.0, now=1.0)
    assert first == WarmUpRun("a", shape(16))
    warm_up.ran(first, 0.1)  # not longer than it may be
    second = warm_up.next_run(quiet_since=0.0, free_share=1.0, now=1.2)
    assert second == WarmUpRun("a", shape(64))
    warm_up.ran(second, 0.11)
    # Of fewer tokens a row: what two dimensions cost can't be told from one run.
    assert all_runs(warm_up) == [WarmUpRun("a", shape(32, rows=4))]


def test_the_model_that_was_called_last_goes_first() -> None:
    warm_up = IdleWarmUp(SPEC)
    for model in ("a", "b", "c"):
        warm_up.loaded(model, [shape(16), shape(32)])
    warm_up.called("a")
    warm_up.called("stranger")
    order = [run.model for run in all_runs(warm_up)]
    assert order == ["a", "a", "c", "c", "b", "b"]


def test_a_model_that_is_gone_is_not_run_and_one_loaded_again_begins_anew() -> None:
    warm_up = IdleWarmUp(SPEC)
    warm_up.loaded("a", [shape(16), shape(32)])
    run = warm_up.next_run(quiet_since=0.0, free_share=1.0, now=1.0)
    assert run is not None
    warm_up.gone("a")
    warm_up.ran(run, 9.0)  # told of it afterwards
    assert warm_up.next_run(quiet_since=0.0, free_share=1.0, now=1.0) is None
    warm_up.loaded("a", [shape(16)])
    assert all_runs(warm_up) == [WarmUpRun("a", shape(16))]


def test_a_model_without_shapes_leaves_nothing_to_do() -> None:
    warm_up = IdleWarmUp(SPEC)
    warm_up.loaded("a", [])
    assert warm_up.next_at(quiet_since=0.0) == inf
    assert warm_up.snapshot() == {}


def test_nothing_runs_where_memory_is_nearly_full() -> None:
    warm_up = IdleWarmUp(SPEC)
    warm_up.loaded("a", [shape(16)])
    assert warm_up.next_run(quiet_since=0.0, free_share=0.24, now=1.0) is None
    run = warm_up.next_run(quiet_since=0.0, free_share=0.25, now=1.0)
    assert run == WarmUpRun("a", shape(16))
