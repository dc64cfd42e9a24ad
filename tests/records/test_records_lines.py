"""Lines: which bytes are a record, and that cutting an object changes none of them."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_files import SETTINGS, blocks_of, error_of, one_object, records_of

from penstock.core.jobs.spec import Span
from penstock.records.formats.lines import RecordBlock, line_blocks
from penstock.records.reader import RecordReader


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\n", [b""]),
        (b"a\n\nb\n\n", [b"a", b"", b"b", b""]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r", [b"a\r"]),
        (b"\xff\x00\n\xfe", [b"\xff\x00", b"\xfe"]),
    ],
)
def test_a_line_is_what_stands_before_a_newline(
    tmp_path: Path, content: bytes, expected: list[bytes]
) -> None:
    """A carriage return before it belongs to the end; empty lines count; the last needs no end."""
    one, data = one_object(tmp_path, content, split="Line")
    assert records_of(one, data) == expected


class MemoryObject:
    """An object of a few bytes, in chunks of a given size."""

    def __init__(self, content: bytes, chunk: int) -> None:
        self.read = 0  #: bytes that were asked for
        self.content = content
        self.size = len(content)
        self.chunk = chunk

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        stop = min(stop, self.size)
        for at in range(start, stop, self.chunk):
            self.read += self.chunk
            yield self.content[at : min(at + self.chunk, stop)]


def spans_at(size: int, cuts: list[int]) -> list[Span]:
    edges = sorted({0, size, *(at for at in cuts if at < size)})
    pairs = itertools.pairwise(edges) if size else [(0, 0)]
    return [Span(object=0, number=n, start=a, stop=b) for n, (a, b) in enumerate(pairs)]


def lines_of(content: bytes, chunk: int, span: Span) -> list[RecordBlock]:
    source = MemoryObject(content, chunk)
    return list(line_blocks(source, span, record_bytes_max=1000, what="memory"))


@settings(max_examples=300, deadline=None)
@given(
    content=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bcd", b"\r\n", b"\0"]), max_size=40),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    chunk=st.integers(1, 20),
)
def test_spans_together_have_the_lines_of_the_whole(
    content: list[bytes], cuts: list[int], chunk: int
) -> None:
    """For any bytes, any cut and any chunks: nothing lost, nothing twice, each where it begins."""
    whole = b"".join(content)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    ended = expected if whole.endswith(b"\n") else expected[:-1]
    expected = [line.removesuffix(b"\r") for line in ended] + expected[len(ended) :]
    found: list[bytes] = []
    for span in spans_at(len(whole), cuts):
        index = 0
        for block in lines_of(whole, chunk, span):
            assert block.records
            assert block.first == index
            for at, record in enumerate(block.records, index):
                offset = block.offset_of(at)
                assert span.start <= offset < span.stop
                assert whole[offset : offset + len(record)] == record
            index += len(block.records)
            found += block.records
    assert found == expected


def test_every_cut_of_a_text_in_every_size_of_chunk() -> None:
    """The same, for one text with all that lines have, and no chance in it."""
    whole = b"\nab\r\n\n\rc\nd"
    expected = [b"", b"ab", b"", b"\rc", b"d"]
    for chunk in range(1, len(whole) + 1):
        for cuts in itertools.product((False, True), repeat=len(whole) - 1):
            edges = [at for at, is_cut in enumerate(cuts, 1) if is_cut]
            spans = spans_at(len(whole), edges)
            blocks = (block for span in spans for block in lines_of(whole, chunk, span))
            found = [record for block in blocks for record in block.records]
            assert found == expected, (chunk, edges)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_the_limit_is_the_same_wherever_chunks_end(chunk: int, end: bytes) -> None:
    span = Span(object=0, number=0, start=0, stop=10_000)
    for before in (b"", b"first\n"):
        fits = MemoryObject(before + b"x" * 20 + end, chunk)
        blocks = line_blocks(fits, span, record_bytes_max=20, what="it")
        assert [record for block in blocks for record in block.records][-1] == b"x" * 20
        over = MemoryObject(before + b"x" * 21 + end + b"more\n", chunk)
        error = error_of(lambda o=over: list(line_blocks(o, span, record_bytes_max=20, what="it")))
        assert f"at byte {len(before)} " in error.message


def test_a_line_that_fits_is_no_line_without_end_to_the_span_behind_it() -> None:
    """Which begins in its second byte, or at its end, and reads one byte at a time."""
    content = b"x" * 20 + b"\r\n" + b"y\n"
    for start in (1, 21, 22):
        span = Span(object=0, number=1, start=start, stop=100)
        blocks = line_blocks(MemoryObject(content, 1), span, record_bytes_max=20, what="it")
        assert [block.records for block in blocks] == [[b"y"]]


def test_little_more_than_the_limit_is_read_of_a_line_without_end() -> None:
    for start in (0, 500):
        span = Span(object=0, number=0, start=start, stop=100_000)
        endless = MemoryObject(b"x" * 100_000, 10)
        error = error_of(lambda e=endless, s=span: list(
            line_blocks(e, s, record_bytes_max=100, what="it")
        ))  # fmt: skip
        assert (error.code, endless.read <= 120) == ("record-too-large", True)
    # What lies before a span's first line is not its own: it is looked at as far as the span goes.
    short = MemoryObject(b"x" * 100_000, 10)
    assert (
        list(
            line_blocks(
                short,
                Span(object=0, number=1, start=500, stop=540),
                record_bytes_max=100,
                what="it",
            )
        )
        == []
    )
    assert short.read <= 50


def test_a_line_over_the_limit_is_refused_with_its_place(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, b"ab\n" + b"x" * 101 + b"\nc\n", split="Line")
    error = error_of(lambda: records_of(one, data, record_bytes_max=100))
    assert (error.code, "byte 3" in error.message) == ("record-too-large", True)
    assert records_of(one, data, record_bytes_max=101) == [b"ab", b"x" * 101, b"c"]


def test_a_line_without_end_is_not_read_to_the_end_of_the_object(tmp_path: Path) -> None:
    """Neither by the span in which it begins nor by those that look for its end."""
    one, data = one_object(tmp_path, b"x" * 3_000_000, split="Line")
    for start in (0, 1_000_000):
        span = Span(object=0, number=0, start=start, stop=one.size)
        error = error_of(lambda s=span: blocks_of(one, s, data, record_bytes_max=1000))
        assert error.code == "record-too-large"
    inner = Span(object=0, number=1, start=1_000_000, stop=1_000_100)
    assert blocks_of(one, inner, data, record_bytes_max=1000) == []


def test_an_object_that_is_not_split_is_one_record(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, b"a\nb\n")
    assert records_of(one, data) == [b"a\nb\n"]
    assert error_of(lambda: records_of(one, data, record_bytes_max=3)).code == "record-too-large"
    empty, data = one_object(tmp_path, b"", name="empty")
    assert records_of(empty, data) == []


def test_a_file_that_changed_since_it_was_listed_is_not_read(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, b"a\nb\n", split="Line")
    (tmp_path / "data").write_bytes(b"a\nc\n")
    assert error_of(lambda: records_of(one, data)).code == "input-changed"


def test_a_file_that_changes_while_it_is_read_fails_at_its_end(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, b"a\nb\n", split="Line")
    span = Span(object=0, number=0, start=0, stop=4)
    blocks = RecordReader(one, span, data, SETTINGS).blocks()
    assert next(blocks).records == [b"a", b"b"]
    (tmp_path / "data").write_bytes(b"a\nb\nc\n")
    assert error_of(lambda: list(blocks)).code == "input-changed"


def test_memory_does_not_grow_with_the_object(tmp_path: Path) -> None:
    one, data = one_object(tmp_path, (b"y" * 39 + b"\n") * 500_000, split="Line")
    span = Span(object=0, number=0, start=0, stop=one.size)
    tracemalloc.start()
    try:
        blocks = RecordReader(one, span, data, SETTINGS).blocks()
        count = sum(len(block.records) for block in blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 500_000
    assert peak < 6_000_000


def test_where_many_records_begin_is_found_in_one_pass() -> None:
    """A block of which all records are refused is not read anew for each of them."""

    class CountedReads(bytes):
        passes = 0

        def split(self, *args: Any) -> list[bytes]:
            CountedReads.passes += 1
            return super().split(*args)

    block = RecordBlock(
        records=[b"ab", b"", b"c"], first=7, start=100, raw=CountedReads(b"ab\n\nc\n")
    )
    assert [block.offset_of(index) for index in (7, 8, 9)] == [100, 103, 104]
    assert CountedReads.passes == 1
