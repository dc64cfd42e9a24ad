"""Windows and batches follow from the records of a span alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.jobs.spec import Span
from penstock.core.jobs.windows import (
    RowBatch,
    RowsSpec,
    Windows,
    WindowSpec,
    full_batches,
    rows_of_length,
    windows_of,
)


def test_a_window_ends_when_it_has_its_records_or_its_bytes() -> None:
    windows = Windows(WindowSpec(records_first=3, records_max=3, bytes_max=10))
    assert windows.add([1, 1]) == []
    assert windows.add([1, 1, 1]) == [1]  # the third record, two of them here before
    # two bytes are in the open window: 8 more fit, one more does not
    assert windows.add([8, 1]) == [1]


def test_windows_double_from_a_small_first_one() -> None:
    windows = Windows(WindowSpec(records_first=2, records_max=7, bytes_max=100))
    assert windows.add([1] * 30) == [2, 6, 13, 20, 27]
    # one that its bytes have ended counts as well
    windows = Windows(WindowSpec(records_first=2, records_max=9, bytes_max=3))
    assert windows.add([3, 1, 1, 1, 1]) == [1, 4]


def test_windows_are_what_they_were() -> None:
    """Other bounds give other batches, and a job that an older version began other bytes."""
    assert WindowSpec() == WindowSpec(records_max=16_384, records_first=512, bytes_max=8 * 1024**2)


def test_only_a_jobs_first_span_begins_with_a_small_window() -> None:
    """Lanes wait for it. What is read while they run the span before it need not be quick."""
    first = Span(object=0, number=0, start=0, stop=10)
    assert windows_of(first) == WindowSpec(records_first=512)
    for behind in (
        Span(object=0, number=1, start=10, stop=20),
        Span(object=3, number=0, start=0, stop=10),
    ):
        assert windows_of(behind) == WindowSpec(records_first=4096)


def test_a_record_above_the_bound_is_a_window_of_its_own() -> None:
    windows = Windows(WindowSpec(records_max=10, bytes_max=10))
    assert windows.add([1, 9, 50, 4, 4]) == [2, 3]


@given(
    sizes=st.lists(st.integers(0, 30), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=5),
)
def test_windows_are_the_same_whichever_blocks_records_are_read_in(
    sizes: list[int], cuts: list[int]
) -> None:
    spec = WindowSpec(records_first=2, records_max=7, bytes_max=40)
    at_once = Windows(spec).add(sizes)
    windows = Windows(spec)
    found = []
    begin = 0
    for end in [*sorted(min(cut, len(sizes)) for cut in cuts), len(sizes)]:
        found += [begin + at for at in windows.add(sizes[begin:end])]
        begin = end
    assert found == at_once


@pytest.mark.parametrize(
    ("length", "rows"),
    [
        (0, 128),  # texts without a token
        (1, 128),
        (16, 128),  # as many as a batch takes
        (20, 96),  # 102 would fit: kernels take rows in groups of 8
        (100, 16),  # 20 would fit
        (250, 8),
        (400, 5),  # below a group, every row counts
        (5000, 1),  # a row that is too long for a batch is one
    ],
)
def test_a_full_batch_has_as_many_rows_as_its_tokens_allow(length: int, rows: int) -> None:
    assert rows_of_length(length, RowsSpec(rows_max=128, tokens_max=2048)) == rows


def test_tokens_are_counted_from_one_a_row() -> None:
    assert [rows_of_length(length, RowsSpec(rows_max=99, tokens_max=7)) for length in range(3)] == [
        7, 7, 3,
    ]  # fmt: skip


def test_batches_are_of_like_length_longest_first_and_rows_of_one_length_keep_their_order() -> None:
    lengths = [3, 9, 3, 5, 9, 3, 5]
    assert full_batches(lengths, RowsSpec(rows_max=3)) == [
        RowBatch((1, 4, 3), 9),
        RowBatch((6, 0, 2), 5),
        RowBatch((5,), 3),
    ]


def test_rows_of_two_kinds_share_no_batch() -> None:
    batches = full_batches([1, 1, 1, 1], RowsSpec(rows_max=3), kinds=[1, 0, 1, 0])
    assert batches == [RowBatch((1, 3), 1), RowBatch((0, 2), 1)]


def test_no_rows_are_no_batches() -> None:
    assert full_batches([], RowsSpec(rows_max=8)) == []


@given(
    lengths=st.lists(st.integers(0, 70), max_size=80),
    rows_max=st.integers(1, 9),
    tokens_max=st.integers(0, 200),
)
def test_every_row_is_in_one_batch_and_only_the_last_one_may_lack_rows(
    lengths: list[int], rows_max: int, tokens_max: int
) -> None:
    spec = RowsSpec(rows_max=rows_max, tokens_max=tokens_max)
    batches = full_batches(lengths, spec)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert batch.length == max(lengths[row] for row in batch.rows)
        assert len(batch.rows) == rows_of_length(batch.length, spec) or batch is batches[-1]
        assert len(batch.rows) == 1 or len(batch.rows) * batch.length <= (tokens_max or 10**9)
