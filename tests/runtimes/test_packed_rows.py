"""Texts side by side: what a graph gets, and what comes back for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.packed_sizes import ROW_TOKENS, PackedSize
from penstock.runtimes.packed_rows import (
    FIRST,
    POSITIONS,
    TEXTS,
    Layout,
    layout_bytes,
    layout_of,
    placed_texts,
    refusal_of,
)

LAYOUT = Layout(
    inputs=("input_ids", "token_type_ids", POSITIONS, TEXTS, FIRST),
    dtypes=("i64",) * 5,
    of_rows=(True, False),
)


def test_short_texts_share_one_row_of_the_least_width() -> None:
    placed = placed_texts([3, 2, 4])
    assert placed is not None
    assert placed.size == (1, 16)
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
    assert placed.mask(LAYOUT).tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    of_rows = Layout(LAYOUT.inputs, LAYOUT.dtypes, (True, True))
    assert placed.mask(of_rows).shape == (3, 0), "nothing is pooled"


def test_a_larger_graph_leaves_the_rest_of_each_row() -> None:
    """Two rows of 40; the graph that there is has rows of 48."""
    placed = placed_texts([20, 30, 20, 10])
    assert placed is not None
    assert placed.size == (2, 40)
    placed.size = PackedSize(2, 48)
    tokens = {"input_ids": [[1] * 20, [2] * 30, [3] * 20, [4] * 10]}
    ids, _, _, first = placed.inputs(
        Layout(("input_ids", POSITIONS, TEXTS, FIRST), ("i64",) * 4, (True,)), tokens, 4
    )
    assert ids.tolist() == [[2] * 30 + [4] * 10 + [0] * 8, [1] * 20 + [3] * 20 + [0] * 8]
    assert first.tolist() == [48, 0, 68, 30]


def test_outputs_of_rows_and_of_tokens_come_back_by_text() -> None:
    placed = placed_texts([3, 2])
    assert placed is not None
    rows = np.arange(4 * 2).reshape(4, 2)  # of four texts at most
    tokens = np.arange(8)[None, :, None] * np.ones(2)
    apart = placed.outputs(LAYOUT, {"scores": rows, "vectors": tokens})
    assert apart["scores"].tolist() == [[0, 1], [2, 3]]
    assert apart["vectors"].shape == (2, 3, 2)
    assert apart["vectors"][0, :, 0].tolist() == [0, 1, 2]
    assert apart["vectors"][1, :2, 0].tolist() == [3, 4]


@given(st.lists(st.integers(1, ROW_TOKENS), min_size=1, max_size=32))
def test_each_text_has_its_own_tokens_positions_and_number(lengths: list[int]) -> None:
    placed = placed_texts(lengths)
    assert placed is not None
    layout = Layout(("input_ids", POSITIONS, TEXTS, FIRST), ("i64",) * 4, (False,))
    tokens = {"input_ids": [[at + 1] * length for at, length in enumerate(lengths)]}
    ids, positions, texts, first = placed.inputs(layout, tokens, 32)
    flat = ids.ravel()
    for at, length in enumerate(lengths):
        begin = int(first[at])
        assert flat[begin : begin + length].tolist() == [at + 1] * length
        assert positions.ravel()[begin : begin + length].tolist() == list(range(length))
        assert texts.ravel()[begin : begin + length].tolist() == [at] * length
    assert int((flat > 0).sum()) == sum(lengths)
    assert ((texts.ravel() == -1) == (flat == 0)).all()


def test_a_size_is_the_shape_of_a_graphs_inputs() -> None:
    least = LAYOUT.shape(PackedSize(1, 8), 32)
    assert least == ((1, 8),) * 4 + ((8,),), "no more texts than tokens"
    assert LAYOUT.shape(PackedSize(4, 64), 32) == ((4, 64),) * 4 + ((32,),)
    assert [shape[0] for shape in LAYOUT.needed_shapes(32)][:2] == [(4, 64), (2, 64)]


def test_a_layout_is_kept_with_the_graphs() -> None:
    assert layout_of(layout_bytes(LAYOUT, "")) == LAYOUT
    assert refusal_of(layout_bytes(LAYOUT, "")) == ""
    refused = layout_bytes(None, "pooling within the graph")
    assert layout_of(refused) is None
    assert refusal_of(refused) == "pooling within the graph"


@pytest.mark.parametrize("broken", [b"", b"{}", b'{"layout": {"inputs": []}}', b"[]"])
def test_a_broken_layout_is_none(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        layout_of(broken)


def test_a_broken_refusal_says_so() -> None:
    with pytest.raises(ValueError, match="refused"):
        refusal_of(b"{}")
