"""Texts side by side: where each lies, what a graph gets, and what comes back for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtimes.packed_rows import (
    FIRST,
    POSITIONS,
    ROW_TOKENS,
    TEXTS,
    Layout,
    layout_bytes,
    layout_of,
    place,
)

LAYOUT = Layout(
    inputs=("input_ids", "token_type_ids", POSITIONS, TEXTS, FIRST),
    dtypes=("i64",) * 5,
    of_rows=(True, False),
)


def test_short_texts_share_one_row_of_the_least_width() -> None:
    placed = place([3, 2, 4])
    assert placed is not None
    assert (placed.rows, placed.width) == (1, 16)
    ids, types, positions, texts, first = placed.inputs(
        LAYOUT,
        {"input_ids": [[11, 12, 13], [21, 22], [31, 32, 33, 34]],
         "token_type_ids": [[0, 0, 1], [0, 1], [0, 0, 1, 1]]},
        4,
    )  # fmt: skip
    spare = [0] * 7
    assert ids.tolist() == [[11, 12, 13, 21, 22, 31, 32, 33, 34, *spare]]
    assert types.tolist() == [[0, 0, 1, 0, 1, 0, 0, 1, 1, *spare]]
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3, *spare]]
    assert texts.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2, 2, *([-1] * 7)]]
    assert first.tolist() == [0, 3, 5, 0]
    assert placed.mask().tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]


def test_more_texts_fill_whole_rows_the_longest_first() -> None:
    """40 and 20 and 4 fill the first of two rows; 30 begins the second."""
    placed = place([20, 40, 30, 4])
    assert placed is not None
    assert (placed.rows, placed.width) == (2, ROW_TOKENS)
    tokens = {"input_ids": [[1] * 20, [2] * 40, [3] * 30, [4] * 4]}
    ids, _, _, first = placed.inputs(
        Layout(("input_ids", POSITIONS, TEXTS, FIRST), ("i64",) * 4, (True,)), tokens, 4
    )
    assert ids.tolist() == [[2] * 40 + [1] * 20 + [4] * 4, [3] * 30 + [0] * 34]
    assert first.tolist() == [40, 0, 64, 60]


@pytest.mark.parametrize("lengths", [[5, 0], [0], [ROW_TOKENS + 1], [40] * 33])
def test_what_does_not_fit_is_padded(lengths: list[int]) -> None:
    """An empty text, one that is longer than a row, more rows than a graph has."""
    assert place(lengths) is None


def test_each_size_grows_to_the_next_that_has_a_graph() -> None:
    placed = place([30])
    assert placed is not None
    seen = [(placed.rows, placed.width)]
    while placed.enlarge():
        seen.append((placed.rows, placed.width))
    assert seen == [
        (1, 32), (1, 48), (1, 64), (2, 64), (3, 64), (4, 64), (6, 64), (8, 64), (12, 64),
        (16, 64), (24, 64), (32, 64),
    ]  # fmt: skip


def test_outputs_of_rows_and_of_tokens_come_back_by_text() -> None:
    placed = place([3, 2])
    assert placed is not None
    rows = np.arange(4 * 2).reshape(4, 2)  # of four texts at most
    tokens = np.arange(8)[None, :, None] * np.ones(2)
    apart = placed.outputs(LAYOUT, {"scores": rows, "vectors": tokens})
    assert apart["scores"].tolist() == [[0, 1], [2, 3]]
    assert apart["vectors"].shape == (2, 3, 2)
    assert apart["vectors"][0, :, 0].tolist() == [0, 1, 2]
    assert apart["vectors"][1, :2, 0].tolist() == [3, 4]


@given(st.lists(st.integers(1, ROW_TOKENS), min_size=1, max_size=32))
def test_no_two_texts_share_a_place_and_none_crosses_a_row(lengths: list[int]) -> None:
    placed = place(lengths)
    assert placed is not None
    layout = Layout(("input_ids", POSITIONS, TEXTS, FIRST), ("i64",) * 4, (False,))
    tokens = {"input_ids": [[at + 1] * length for at, length in enumerate(lengths)]}
    ids, positions, texts, first = placed.inputs(layout, tokens, 32)
    flat = ids.ravel()
    for at, length in enumerate(lengths):
        begin = int(first[at])
        assert begin // placed.width == (begin + length - 1) // placed.width
        assert flat[begin : begin + length].tolist() == [at + 1] * length
        assert positions.ravel()[begin : begin + length].tolist() == list(range(length))
    assert int((flat > 0).sum()) == sum(lengths)
    assert ((texts.ravel() == -1) == (flat == 0)).all()


def test_the_graphs_that_are_needed_stand_in_for_all() -> None:
    """Rows of a batch of 32 short texts: 4; what no graph has is at most twice as large."""
    sizes = [shape[0] for shape in LAYOUT.shapes(32)]
    assert sizes == [
        (1, 8), (1, 16), (1, 24), (1, 32), (1, 48), (1, 64), (2, 64), (3, 64), (4, 64),
    ]  # fmt: skip
    needed = [shape[0] for shape in LAYOUT.needed_shapes(32)]
    assert needed == [(4, 64), (2, 64), (1, 64), (1, 32), (1, 16)]
    assert LAYOUT.shape(1, 8, 32)[-1] == (8,), "no more texts than tokens"
    assert LAYOUT.shape(4, 64, 32)[-1] == (32,)


def test_a_layout_is_kept_with_the_graphs() -> None:
    assert layout_of(layout_bytes(LAYOUT, "")) == LAYOUT
    assert layout_of(layout_bytes(None, "pooling within the graph")) is None


@pytest.mark.parametrize("broken", [b"", b"{}", b'{"layout": {"inputs": []}}', b"[]"])
def test_a_broken_layout_is_none(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        layout_of(broken)
