"""Which shapes get a graph of their own: those that come often, one at a time, within a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.hot_shapes import HotShapes, Shape

A: Shape = ((1, 8),)
B: Shape = ((2, 8),)
C: Shape = ((4, 16),)
D: Shape = ((8, 16),)


def runs(hot: HotShapes, shape: Shape, count: int) -> list[Shape]:
    """The graphs asked for while `shape` runs `count` times."""
    asked = [hot.ran(shape) for _ in range(count)]
    return [each for each in asked if each is not None]


def test_a_shape_gets_its_graph_at_its_32nd_run_and_only_once() -> None:
    hot = HotShapes(2)
    assert runs(hot, A, 31) == []
    assert hot.ran(A) == A
    assert runs(hot, A, 100) == []
    assert hot.built(A) is None
    assert runs(hot, A, 100) == []


def test_one_graph_is_compiled_at_a_time() -> None:
    hot = HotShapes(2)
    assert runs(hot, A, 32) == [A]
    assert runs(hot, B, 64) == []
    hot.built(A)
    assert hot.ran(B) == B


def test_a_shape_that_cannot_be_compiled_is_not_asked_for_again() -> None:
    hot = HotShapes(2)
    assert runs(hot, A, 32) == [A]
    hot.failed(A)
    assert runs(hot, A, 100) == []
    assert runs(hot, B, 32) == [B]


def test_when_all_are_taken_a_shape_four_times_as_frequent_replaces_the_rarest() -> None:
    hot = HotShapes(2)
    for shape, count in ((A, 32), (B, 50)):
        assert runs(hot, shape, count) == [shape]
        hot.built(shape)
    assert runs(hot, C, 127) == []
    assert hot.ran(C) == C
    assert hot.built(C) == A
    assert [each["shape"] for each in hot.snapshot()] == [[[4, 16]], [[2, 8]]]


def test_counts_halve_so_that_the_past_does_not_decide_for_ever() -> None:
    hot = HotShapes(1)
    assert runs(hot, A, 32) == [A]
    hot.built(A)
    runs(hot, A, 4095 - 32)
    assert hot.snapshot() == [{"shape": [[1, 8]], "runs": 4095}]
    hot.ran(A)
    assert hot.snapshot() == [{"shape": [[1, 8]], "runs": 2048}]
    assert runs(hot, B, 4095) == []
    assert hot.snapshot() == [{"shape": [[1, 8]], "runs": 2048}]
    assert hot.ran(B) is None
    assert hot.snapshot() == [{"shape": [[1, 8]], "runs": 1024}]
    assert runs(hot, B, 4096) == [B]


@pytest.mark.parametrize(("kept", "faded"), [(A, B), (B, A)])
def test_a_shape_that_no_longer_comes_counts_for_nothing_and_gives_way(
    kept: Shape, faded: Shape
) -> None:
    """Both came 32 times; after five halvings one run is left of each, and one comes once more."""
    hot = HotShapes(2)
    for shape in (A, B):
        assert runs(hot, shape, 32) == [shape]
        hot.built(shape)
    assert runs(hot, C, 128) == [C]
    hot.failed(C)
    runs(hot, C, 5 * 4096 - 64 - 128)
    hot.ran(kept)
    runs(hot, C, 4095)
    assert hot.snapshot() == [
        {"shape": [list(sizes) for sizes in kept], "runs": 1},
        {"shape": [list(sizes) for sizes in faded], "runs": 0},
    ]
    assert runs(hot, D, 128) == [D]
    assert hot.built(D) == faded


def test_without_room_nothing_is_asked_for() -> None:
    assert runs(HotShapes(0), A, 1000) == []


@given(
    st.lists(st.tuples(st.sampled_from("rbf"), st.integers(0, 5), st.integers(1, 200))),
    st.integers(0, 3),
)
def test_never_more_graphs_than_allowed(inputs: list[tuple[str, int, int]], most: int) -> None:
    hot, asked = HotShapes(most), None
    for kind, number, count in inputs:
        if kind == "r":
            for got in runs(hot, ((number,),), count):
                assert asked is None
                asked = got
        elif asked is not None:
            if kind == "b":
                hot.built(asked)
            else:
                hot.failed(asked)
            asked = None
        hot.check_invariants()
        assert len(hot.snapshot()) <= most


def test_after_a_graph_the_most_frequent_shape_without_one_follows() -> None:
    hot = HotShapes(3)
    assert runs(hot, A, 32) == [A]
    assert hot.following() is None  # one is under way
    runs(hot, B, 32)
    runs(hot, C, 50)
    runs(hot, D, 31)
    hot.built(A)
    assert hot.following() == C
    hot.failed(C)
    assert hot.following() == B
    hot.built(B)
    assert hot.following() is None
    assert hot.ran(D) == D


def test_restored_graphs_have_places_and_give_them_to_shapes_that_come_128_times() -> None:
    hot = HotShapes(2)
    assert [hot.restore(shape) for shape in (A, A, B, C)] == [True, False, True, False]
    assert runs(hot, A, 100) == []
    assert runs(hot, C, 127) == []
    assert hot.ran(C) == C
    assert hot.built(C) == B
    assert hot.snapshot() == [{"shape": [[4, 16]], "runs": 128}, {"shape": [[1, 8]], "runs": 100}]


def test_what_is_expected_gets_its_graphs_in_this_order_before_it_runs() -> None:
    hot = HotShapes(4)
    assert hot.expect([C, A, B]) == C
    assert runs(hot, D, 31) == []
    hot.built(C)
    assert hot.following() == A
    hot.built(A)
    assert hot.following() == B
    hot.built(B)
    assert hot.following() is None


def test_fewer_graphs_are_allowed_and_the_rarest_go() -> None:
    hot = HotShapes(3)
    for shape, count in ((A, 32), (B, 64), (C, 40)):
        assert runs(hot, shape, count) == [shape]
        hot.built(shape)
    assert hot.allow(2) == [A]
    hot.check_invariants()
    assert [each["shape"] for each in hot.snapshot()] == [[[2, 8]], [[4, 16]]]
    assert hot.allow(2) == []
