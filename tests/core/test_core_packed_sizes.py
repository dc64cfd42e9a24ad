"""Which size of a graph the texts of a batch get, and where they lie in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.packed_sizes import (
    ROW_TOKENS,
    SIZES,
    PackedSize,
    Placement,
    needed_sizes,
    place,
    usual_sizes,
)


def test_texts_that_fit_into_one_row_lie_in_it_in_their_order() -> None:
    assert place([3, 2, 4]) == Placement(PackedSize(1, 16), [(0, 0), (0, 3), (0, 5)])
    assert place([8]) == Placement(PackedSize(1, 8), [(0, 0)])
    assert place([64]) == Placement(PackedSize(1, 64), [(0, 0)])


def test_ten_queries_lie_in_two_short_rows_the_longest_first() -> None:
    placed = place([8, 6, 7, 9, 8, 6, 6, 8, 9, 7])
    assert placed is not None
    assert placed.size == PackedSize(2, 40), "74 tokens of 80; two whole rows have 128"
    assert placed.places == [
        (0, 18), (0, 34), (1, 8), (0, 0), (0, 26), (1, 22), (1, 28), (1, 0), (0, 9), (1, 15)
    ]  # fmt: skip
    assert placed.starts() == [18, 34, 48, 0, 26, 62, 68, 40, 9, 55]


def test_a_row_is_as_long_as_the_longest_text() -> None:
    """70 tokens would fit into two rows of 40."""
    placed = place([50, 20])
    assert placed is not None
    assert placed.size == PackedSize(2, 56)


def test_what_does_not_fit_into_rows_that_have_room_for_all_gets_more() -> None:
    """96 tokens, as two rows of 48 have, but three texts of 32 do not fit into these."""
    placed = place([32, 32, 32])
    assert placed is not None
    assert placed.size == PackedSize(2, 64)


@pytest.mark.parametrize("lengths", [[5, 0], [0], [ROW_TOKENS + 1], [40] * 33])
def test_what_no_size_holds_is_not_packed(lengths: list[int]) -> None:
    """An empty text, one that is longer than a row, more rows than a graph has."""
    assert place(lengths) is None


def test_a_larger_size_keeps_each_text_in_its_row_and_is_twice_as_large_at_most() -> None:
    def larger(lengths: list[int]) -> list[PackedSize]:
        placed = place(lengths)
        assert placed is not None
        return list(placed.larger())

    assert larger([8]) == [(1, 16)]
    assert larger([30]) == [(1, 48), (1, 64)]
    assert larger([40, 40]) == [(2, 48), (2, 56), (2, 64), (3, 48)]
    assert larger([60, 60]) == [(3, 64), (4, 64)]
    assert larger([64] * 32) == []


def test_some_sizes_stand_in_for_all() -> None:
    """32 texts of 8 tokens fill four rows; what no graph has is at most twice as large."""
    assert needed_sizes(32) == [(4, 64), (2, 64), (1, 64), (1, 32), (1, 16)]
    assert needed_sizes(1)[0] == (2, 64)
    assert needed_sizes(256)[0] == (32, 64)


def test_the_usual_sizes_are_all_that_short_texts_have_and_the_needed_ones_come_first() -> None:
    """A service whose batches have 32 texts at most never waits for a graph, if they are short."""
    usual = usual_sizes(32)
    assert usual[:5] == needed_sizes(32)
    assert sorted(size.tokens for size in usual) == [
        8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 168, 192, 224, 256,
    ]  # fmt: skip
    for count in range(1, 33):
        placed = place([8] * count)
        assert placed is not None
        assert placed.size in usual


def test_each_size_holds_more_than_the_one_before() -> None:
    tokens = [size.tokens for size in SIZES]
    assert tokens == sorted(set(tokens))


@given(st.lists(st.integers(1, ROW_TOKENS), min_size=1, max_size=32))
def test_no_two_texts_share_a_place_and_none_crosses_a_row(lengths: list[int]) -> None:
    placed = place(lengths)
    assert placed is not None
    taken: set[int] = set()
    for start, (row, within), length in zip(placed.starts(), placed.places, lengths, strict=True):
        assert row < placed.size.rows
        assert within + length <= placed.size.width
        assert start == row * placed.size.width + within
        own = set(range(start, start + length))
        assert not own & taken
        taken |= own


@given(st.lists(st.integers(1, 9), min_size=5, max_size=32))
def test_short_texts_leave_a_third_of_the_places_empty_at_most(lengths: list[int]) -> None:
    placed = place(lengths)
    assert placed is not None
    assert placed.size.tokens <= max(16, sum(lengths) * 1.5)
